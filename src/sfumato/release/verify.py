"""Verification: a release derived once more from its own measurements, and compared."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.accounting import Ledger
from sfumato.errors import LedgerError, ReleaseError, SfumatoError, VerificationFailed
from sfumato.recipes import EXTRA_FILES
from sfumato.release.certificate import (
    FORMAT,
    build_certificate,
    describe_entry,
    pack_json,
    read_plan,
    sum_costs,
)
from sfumato.release.differences import check_file
from sfumato.release.folder import FILES, RESUME
from sfumato.release.release import derive_files, replay_answers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sfumato.recipes import Plan

__all__ = ["Verification", "check_claim", "verify"]

_VERSION = re.compile(r"[\w.+-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was checked and found right, and what could not be checked."""

    checked: tuple[str, ...]
    unchecked: tuple[str, ...]
    total: Mapping[str, Any]


def verify(folder: Path | str, *, ledger: Path | str | None = None) -> Verification:
    """The checks that the release in `folder` passes; the first that fails raises VerificationFailed.

    With `ledger`, its whole chain is checked too, and that it holds this release's charge.
    """
    folder = Path(folder)
    certificate, files = _read(folder)
    stated = files.pop("certificate.json")
    try:
        plan = read_plan(certificate)
        stated_entry = certificate["ledger"]
        answers, product = replay_answers(plan, files["measurements.parquet"])
        derived = derive_files(plan, answers, product, ledger=stated_entry)
        again = build_certificate(plan, answers, ledger=stated_entry, files=files, facts=product.facts)
    except (SfumatoError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        message = f"the certificate does not describe a release that could have been made: {error}"
        raise VerificationFailed(message) from None
    checked = _check_tables(files, derived)
    checked.insert(0, _check_certificate(stated, again, certificate.get("versions")))
    unchecked = []
    if ledger is None:
        unchecked.append("the charge in the ledger (no ledger given)")
    else:
        checked.append(_check_ledger(ledger, certificate, plan, files["measurements.parquet"]))
    return Verification(checked=tuple(checked), unchecked=tuple(unchecked), total=certificate["total"])


def check_claim(certificate: Mapping[str, Any], *, charges: Iterable[str] | None = None) -> None:
    """Nothing, or VerificationFailed if a certificate claims what its own plan does not cost.

    With `charges`, the digests of a ledger's entries, the charge must be among them. Only `verify` looks
    at the rest.
    """
    try:
        plan = read_plan(certificate)
        same = (
            plan.digest == certificate["plan_sha256"]
            and sum_costs(plan.costs, delta=plan.delta) == certificate["total"]
        )
        charge = certificate["ledger"]["hash"]
    except (SfumatoError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        message = f"the certificate does not describe a release that could have been made: {error}"
        raise VerificationFailed(message) from None
    if not same:
        message = "certificate.json: what it says was spent is not what its plan costs; see `sfumato verify`"
        raise VerificationFailed(message)
    if charges is not None and charge not in set(charges):
        message = "the ledger of this project does not hold the charge of this release"
        raise VerificationFailed(message)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    try:
        held = {path.name for path in folder.iterdir()}
        extra = [name for name in EXTRA_FILES if name in held]
        if held == {RESUME}:
            message = f"{folder.name!r} holds a release that is not finished; run `sfumato release --resume`"
            raise ReleaseError(message)
        files = {name: (folder / name).read_bytes() for name in (*FILES, *extra)}
        others = held - {*FILES, *extra}
        certificate = json.loads(files["certificate.json"])
    except FileNotFoundError as error:
        name = Path(error.filename).name
        if (folder / "certificate.json").exists():
            message = f"{name} is missing from the release {folder.resolve().name!r}"
            raise VerificationFailed(message) from None
        message = f"{folder.resolve().name!r} is not a release: it has no {name}"
        raise ReleaseError(message) from None
    except OSError as error:
        message = f"{folder.name!r} cannot be read ({type(error).__name__})"
        raise ReleaseError(message) from None
    except ValueError:
        message = f"{folder.name!r}: certificate.json is not valid JSON"
        raise VerificationFailed(message) from None
    if others:
        message = f"{folder.name!r} holds {sorted(others)[0]!r}, which is not part of a release"
        raise VerificationFailed(message)
    if not isinstance(certificate, dict) or certificate.get("format") != FORMAT:
        message = f"{folder.name!r}: certificate.json is not of the format {FORMAT!r}"
        raise VerificationFailed(message)
    return certificate, files


def _check_certificate(stated: bytes, again: Mapping[str, Any], versions: object) -> str:
    # Versions are told, not derived. All else must be, byte for byte, what a release would write.
    told = isinstance(versions, dict) and all(
        isinstance(text, str) and _VERSION.fullmatch(text) for text in versions.values()
    )
    if not told or set(versions) != set(again["versions"]):  # type: ignore[call-overload]
        message = "certificate.json: 'versions' does not name what it should"
        raise VerificationFailed(message)
    expected = {**again, "versions": versions}
    if stated != pack_json(expected):
        document = json.loads(stated)
        wrong = next((key for key in expected if document.get(key) != expected[key]), "its form")
        message = f"certificate.json: {wrong!r} is not what follows from the plan it states"
        raise VerificationFailed(message)
    return "plan, sensitivities, costs and totals follow from recipe and schema"


def _check_tables(files: Mapping[str, bytes], derived: Mapping[str, bytes]) -> list[str]:
    extra = [name for name in EXTRA_FILES if name in files or name in derived]
    names = ("table.csv", "writeup.md", *extra, "table.parquet")
    return [check_file(name, files.get(name), derived.get(name)) for name in names]


def _check_ledger(place: Path | str, certificate: Mapping[str, Any], plan: Plan, measurements: bytes) -> str:
    try:
        opened = Ledger.read_only(place)
        opened.verify()
        entries = opened.entries()
    except LedgerError as error:
        message = f"the ledger does not verify: {error}"
        raise VerificationFailed(message) from None
    stated = certificate["ledger"]
    for entry in entries:
        if describe_entry(entry) == stated:
            if entry.plan_digest != plan.digest or entry.costs != plan.costs:
                message = "the ledger's entry for this release charges another plan"
                raise VerificationFailed(message)
            answer = {"charge": entry.sequence, "sha256": hashlib.sha256(measurements).hexdigest()}
            if not any(each.kind == "answer" and each.description == answer for each in entries):
                message = "measurements.parquet is not the answer that the ledger recorded"
                raise VerificationFailed(message)
            return (
                f"the ledger's chain is whole, entry {entry.sequence} charges this release, and its "
                "measurements are the recorded answer"
            )
    message = "the ledger holds no charge for this release"
    raise VerificationFailed(message)
