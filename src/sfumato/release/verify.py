"""Verification: a release derived once more from its own measurements, and compared."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.accounting import Ledger
from sfumato.errors import LedgerError, VerificationFailed
from sfumato.recipes import EXTRA_FILES
from sfumato.release.certificate import build_certificate, describe_entry, pack_json
from sfumato.release.differences import check_file
from sfumato.release.opening import OpenedRelease, failing_closed, open_folder
from sfumato.release.release import derive_files, replay_answers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sfumato.recipes import Plan

_VERSION = re.compile(r"[\w.+-]{1,40}")
_NO_LEDGER = (
    "the charge: no ledger was given, so that the measurements, and every number that follows from them, "
    "may be invented"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was checked and found right, and what was not checked."""

    checked: tuple[str, ...]
    unchecked: tuple[str, ...]
    total: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """One sentence that claims no more than was checked."""
        pure = f"epsilon {self.total['epsilon']}, " if self.total["epsilon"] is not None else ""
        stated = f"{pure}rho {self.total['rho']}"
        if self.unchecked:
            return (
                f"consistent, not verified: the files follow from the measurements and state {stated}; "
                f"not checked is {'; '.join(self.unchecked)}"
            )
        return f"verified against the ledger, which holds the charge and the answer: {stated}"


def verify(folder: Path | str, *, ledger: Path | str | None = None) -> Verification:
    """The checks that the release in `folder` passes; the first that fails raises VerificationFailed.

    With `ledger`, its whole chain is checked too, and that it holds this release's charge and answer.
    Without it, only that all files follow from the measurements: anybody can invent measurements.
    """
    opened = open_folder(folder)
    files = {name: content for name, content in opened.files.items() if name != "certificate.json"}
    plan = opened.plan()
    with failing_closed("the certificate does not describe a release that could have been made"):
        entry = opened.certificate["ledger"]
        answers, product = replay_answers(plan, files["measurements.parquet"], most=opened.cells)
        derived = derive_files(plan, answers, product, ledger=entry)
        again = build_certificate(plan, answers, ledger=entry, files=files, facts=product.facts)
        checked = [_check_certificate(opened, again), *_check_tables(files, derived, rows=opened.cells)]
    unchecked = []
    if ledger is None:
        unchecked.append(_NO_LEDGER)
    else:
        checked.append(_check_ledger(ledger, opened.certificate, plan, files["measurements.parquet"]))
    return Verification(checked=tuple(checked), unchecked=tuple(unchecked), total=again["total"])


def check_charge(certificate: Mapping[str, Any], charges: Iterable[str]) -> None:
    """Raises VerificationFailed if the charge of a release is not among those of a ledger."""
    with failing_closed("certificate.json names no charge"):
        charge = certificate["ledger"]["hash"]
    if charge not in set(charges):
        raise VerificationFailed("the ledger of this project does not hold the charge of this release")


def _check_certificate(opened: OpenedRelease, again: Mapping[str, Any]) -> str:
    # Versions are told, not derived. All else must be, byte for byte, what a release would write.
    versions, stated = opened.certificate.get("versions"), opened.files["certificate.json"]
    told = isinstance(versions, dict) and all(
        isinstance(text, str) and _VERSION.fullmatch(text) for text in versions.values()
    )
    if not told or set(versions) != set(again["versions"]):  # type: ignore[arg-type]
        raise VerificationFailed("certificate.json: 'versions' does not name what it should")
    expected = {**again, "versions": versions}
    if stated != pack_json(expected):
        document = json.loads(stated)
        wrong = next((key for key in expected if document.get(key) != expected[key]), "its form")
        raise VerificationFailed(f"certificate.json: {wrong!r} is not what follows from the plan it states")
    return "plan, sensitivities, costs and totals follow from recipe and schema"


def _check_tables(files: Mapping[str, bytes], derived: Mapping[str, bytes], *, rows: int) -> list[str]:
    extra = [name for name in EXTRA_FILES if name in files or name in derived]
    names = ("table.csv", "writeup.md", *extra, "table.parquet")
    return [check_file(name, files.get(name), derived.get(name), rows=rows) for name in names]


def _check_ledger(place: Path | str, certificate: Mapping[str, Any], plan: Plan, measurements: bytes) -> str:
    try:
        opened = Ledger.read_only(place)
        opened.verify()
        entries = opened.entries()
    except LedgerError as error:
        raise VerificationFailed(f"the ledger does not verify: {error}") from None
    stated = certificate["ledger"]
    for entry in entries:
        if describe_entry(entry) == stated:
            if entry.plan_digest != plan.digest or entry.costs != plan.costs:
                raise VerificationFailed("the ledger's entry for this release charges another plan")
            answer = {"charge": entry.sequence, "sha256": hashlib.sha256(measurements).hexdigest()}
            if not any(each.kind == "answer" and each.description == answer for each in entries):
                raise VerificationFailed("measurements.parquet is not the answer that the ledger recorded")
            return (
                f"the ledger's chain is whole, entry {entry.sequence} charges this release, and its "
                "measurements are the recorded answer"
            )
    raise VerificationFailed("the ledger holds no charge for this release")
