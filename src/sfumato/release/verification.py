"""Verification: a release derived once more from its own measurements, and compared file by file.

Text must be the same byte for byte. A Parquet file may differ in how its writer laid it out, and the numbers
of a model in their last bits, which the next version of numpy may add up in another order.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.core.errors import LedgerError, SourceError, VerificationFailed
from sfumato.core.exact import digest
from sfumato.core.ledger.chain import AnswerEntry, ChargeEntry, Entry
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.questions.measurement import Answer, Measurement
from sfumato.core.questions.series import RunningSums
from sfumato.recipes.base import EXTRA_FILES, Plan
from sfumato.release.certificate import build_certificate, describe_entry, list_notes, pack_json
from sfumato.release.folder import OpenedRelease, failing_closed, open_folder, pack_step
from sfumato.release.release import derive_files, replay_answers, tell_total
from sfumato.tables.arrays import read_parquet

# Doubles that are so many units in the last place apart are the same but for how they were added up. The
# tables of a model are rounded to 24 bits afterwards, so theirs are rarely one apart.
_LAST_BITS, _LAST_BITS_SHORT = 2**16, 2
_WRITER = re.compile(r"parquet-cpp-arrow version [\w.+-]{1,40}")
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
        """Return one sentence that claims no more than was checked."""
        stated = tell_total(self.total)
        if self.unchecked:
            return (
                f"consistent, not verified: the files follow from the measurements and state {stated}; "
                f"not checked is {'; '.join(self.unchecked)}"
            )
        return f"verified against the ledger, which holds the charge and the answer: {stated}"


def verify(
    folder: Path | str, *, ledger: Path | str | None = None, earlier: Path | str | None = None
) -> Verification:
    """Return the checks that the release in `folder` passes; the first that fails raises VerificationFailed.

    With `ledger`, its whole chain is checked too, and that it holds this release's charge and answer.
    Without it, only that all files follow from the measurements: anybody can invent measurements. With
    `earlier`, the folder of an earlier release of the same series, its periods must have the same answers.
    """
    opened = open_folder(folder)
    files = {name: content for name, content in opened.files.items() if name != "certificate.json"}
    plan = opened.plan()
    with failing_closed("the certificate does not describe a release that could have been made"):
        entry = opened.certificate["ledger"]
        batches: list[tuple[Answer, ...]] = []
        answers, product = replay_answers(
            plan, files["measurements.parquet"], most=opened.cells, batches=batches
        )
        notes = list_notes(plan.table, answers)
        derived = derive_files(plan, answers, product, ledger=entry, notes=notes)
        again = build_certificate(plan, answers, ledger=entry, files=files, facts=product.facts, notes=notes)
        checked = [_check_certificate(opened, again), *_check_tables(files, derived, rows=opened.cells)]
    if earlier is not None:
        checked.append(_check_earlier(plan, answers, earlier))
    unchecked = []
    if ledger is None:
        unchecked.append(_NO_LEDGER)
    else:
        entries = _read_entries(ledger)
        if plan.series:
            checked.append(_check_series(entries, opened.certificate, plan, answers))
        else:
            packed = files["measurements.parquet"]
            checked.append(_check_charges(entries, opened.certificate, plan, batches, packed))
    return Verification(checked=tuple(checked), unchecked=tuple(unchecked), total=again["total"])


def check_charge(certificate: Mapping[str, Any], charges: Iterable[str]) -> None:
    """Raises VerificationFailed if the charge of a release is not among those of a ledger."""
    with failing_closed("certificate.json names no charge"):
        charge = certificate["ledger"]["hash"]
    if charge not in set(charges):
        raise VerificationFailed("the ledger of this project does not hold the charge of this release")


def _check_certificate(opened: OpenedRelease, again: Mapping[str, Any]) -> str:
    # Versions are stated, not derived. All else must be, byte for byte, what a release would write.
    versions, stated = opened.certificate.get("versions"), opened.files["certificate.json"]
    if (
        not isinstance(versions, dict)
        or set(versions) != set(again["versions"])
        or not all(isinstance(text, str) and _VERSION.fullmatch(text) for text in versions.values())
    ):
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


def _read_entries(place: Path | str) -> tuple[Entry, ...]:
    try:
        opened = Ledger.read_only(place)
        opened.verify()
        return opened.entries()
    except LedgerError as error:
        raise VerificationFailed(f"the ledger does not verify: {error}") from None


def _check_charges(
    entries: tuple[Entry, ...],
    certificate: Mapping[str, Any],
    plan: Plan,
    batches: list[tuple[Answer, ...]],
    measurements: bytes,
) -> str:
    """Returns that the ledger charges what was asked, at once or step by step, and recorded the answers."""
    asked = [(plan.asked_digest, plan.costs, measurements)]
    with failing_closed("certificate.json does not name the charges of its steps"):
        stated = [dict(certificate["ledger"])]
        if plan.stepwise:
            stated = [*stated[0].pop("earlier"), *stated]
            asks = [tuple(answer.ask for answer in batch) for batch in batches]
            asked = [
                (digest(plan.step_record(each)), plan.charged(each), pack_step(batch))
                for each, batch in zip(asks, batches, strict=True)
            ]
        pairs = list(zip(stated, asked, strict=True))
    charges = {entry.hash: entry for entry in entries if isinstance(entry, ChargeEntry)}
    recorded = {(each.charge, each.sha256) for each in entries if isinstance(each, AnswerEntry)}
    for charge, (digested, costs, answer) in pairs:
        entry = charges.get(str(charge.get("hash")))
        if entry is None or describe_entry(entry) != charge:
            raise VerificationFailed("the ledger holds no charge for this release")
        paid = entry.costs == costs and entry.window == plan.table.window
        if entry.plan_digest != digested or not paid:
            raise VerificationFailed("the ledger's entry for this release charges another plan")
        if (entry.sequence, hashlib.sha256(answer).hexdigest()) not in recorded:
            raise VerificationFailed("measurements.parquet is not the answer that the ledger recorded")
    numbers = [str(charge["sequence"]) for charge in stated]
    if len(set(numbers)) != len(numbers):
        raise VerificationFailed("certificate.json names one charge for several steps")
    charged = f"entry {numbers[0]} charges" if len(numbers) == 1 else f"{len(numbers)} entries charge"
    return (
        f"the ledger's chain is whole, {charged} this release, and its measurements are the recorded answers"
    )


def _check_earlier(plan: Plan, answers: tuple[Answer, ...], earlier: Path | str) -> str:
    """Return the earlier release is of the same series, and its periods have the same noisy sums."""
    verify(earlier)
    opened = open_folder(earlier)
    before = opened.plan()
    if not plan.series or not before.series or plan.period_record(0) != before.period_record(0):
        raise VerificationFailed("the earlier release is not one of the same series")
    (known,), _ = replay_answers(before, opened.files["measurements.parquet"], most=opened.cells)
    (series,) = answers
    assert isinstance(known, Measurement)
    assert isinstance(series, Measurement)
    size = min(known.noisy_values.size, series.noisy_values.size)
    if not np.array_equal(known.noisy_values[:size], series.noisy_values[:size]):
        raise VerificationFailed("the earlier release has other answers for the same periods of the series")
    return "the periods of the earlier release have the same answers here"


def _check_series(
    entries: tuple[Entry, ...], certificate: Mapping[str, Any], plan: Plan, answers: tuple[Answer, ...]
) -> str:
    """Return one charge pays for all periods, and the values of each are its recorded answer."""
    (series,) = answers
    assert isinstance(series, Measurement)
    assert isinstance(series.request.counted, RunningSums)
    answered = {each.charge: each.sha256 for each in entries if isinstance(each, AnswerEntry)}
    periods = np.split(series.noisy_values, series.request.counted.periods)
    charges: dict[str, ChargeEntry] = {}
    for each in entries:
        if isinstance(each, ChargeEntry) and each.sequence in answered:
            charges.setdefault(each.plan_digest, each)
    first: ChargeEntry | None = None
    for place, values in enumerate(periods):
        entry = charges.get(digest(plan.period_record(place)))
        if entry is None:
            raise VerificationFailed(f"the ledger holds no answer for period {place + 1} of this series")
        first = first or entry
        paid = entry.costs == plan.costs if place == 0 else entry.part_of == first.sequence
        if not paid:
            raise VerificationFailed(
                f"the ledger's entry for period {place + 1} of this series charges another plan"
            )
        if hashlib.sha256(values.astype("<i8").tobytes()).hexdigest() != answered[entry.sequence]:
            raise VerificationFailed(
                f"measurements.parquet: period {place + 1} is not what the ledger recorded"
            )
    if first is None or describe_entry(first) != certificate["ledger"]:
        raise VerificationFailed("the ledger holds no charge for this release")
    return (
        f"the ledger's chain is whole, entry {first.sequence} charges all periods of this series, and its "
        f"measurements are the recorded answers of {len(periods)} of them"
    )


def check_file(name: str, stored: bytes | None, derived: bytes | None, *, rows: int = 0) -> str:
    """What is found right of a file, or VerificationFailed with where it differs from what was derived.

    Another version of the Parquet writer may lay out the same rows differently, and another version of numpy
    give the numbers of a model other last bits. Text must be the same byte for byte.
    """
    if stored == derived:
        return f"{name} follows from the measurements, byte for byte"
    failed = f"{name} does not follow from measurements.parquet"
    if stored is None or derived is None:
        raise VerificationFailed(failed)
    if not name.endswith(".parquet"):
        raise VerificationFailed(f"{failed}: {describe_lines(stored, derived)}")
    try:
        about = pq.ParquetFile(io.BytesIO(stored)).metadata
        plain = about.metadata is None and _WRITER.fullmatch(about.created_by or "")
        found = find_differences(stored, derived, rows=rows)
    except (pa.ArrowException, OSError, ValueError, SourceError):
        raise VerificationFailed(failed) from None
    # Tables are also there as text, so nothing of them may differ.
    exact = name in ("table.parquet", "parents.parquet")
    if not plain or not all(each.is_small and not exact for each in found):
        raise VerificationFailed(f"{failed}: {describe_differences(found)}")
    if found:
        return f"{name} follows from the measurements, but for last bits: {describe_differences(found)}"
    return f"{name} follows from the measurements, row for row (another writer version)"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a file that differs, by how many units in the last place if it holds floating point."""

    field: str
    units: float = math.inf
    is_small: bool = False

    def __str__(self) -> str:
        if math.isinf(self.units):
            return f"{self.field} differs"
        name = "unit" if self.units == 1 else "units"
        return f"{self.field} differs by {self.units:,.0f} {name} in the last place"


def find_differences(stored: bytes, derived: bytes, *, rows: int = 0) -> tuple[Difference, ...]:
    """Return the columns in which two Parquet files differ; of a description in JSON its entries."""
    files = [pq.ParquetFile(io.BytesIO(each)) for each in (stored, derived)]
    # Looked at before anything is read: a file may say that it holds more than fits into memory.
    same = files[0].schema_arrow.equals(files[1].schema_arrow, check_metadata=True)
    if not same or files[0].metadata.num_rows != files[1].metadata.num_rows:
        return (Difference("its form"),)
    mine, theirs = (read_parquet(each, spelled=True, rows=rows) for each in (stored, derived))
    found: dict[str, Difference] = {}
    for name in mine.column_names:
        for each in _compare(name, mine[name].combine_chunks(), theirs[name].combine_chunks()):
            known = found.get(each.field)
            if known is None or each.units > known.units:
                found[each.field] = each
    return tuple(found.values())


def describe_differences(found: tuple[Difference, ...]) -> str:
    """Return the differences in words."""
    return ", ".join(map(str, found)) or "its form differs"


def describe_lines(stored: bytes, derived: bytes) -> str:
    """Return where two text files differ, by the numbers of lines."""
    mine, theirs = stored.split(b"\n"), derived.split(b"\n")
    lines = [number for number, pair in enumerate(zip(mine, theirs, strict=False), 1) if pair[0] != pair[1]]
    if len(mine) != len(theirs):
        return f"it has {len(mine) - 1:,} lines in place of {len(theirs) - 1:,}"
    return f"{len(lines):,} of {len(mine) - 1:,} lines differ, the first is line {lines[0]:,}"


def count_units(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Return how many floating-point numbers lie between two, for each pair; infinite if one is no number.

    >>> count_units(np.array([1.0, 0.0]), np.array([1.0 + 2**-52, -0.0])).tolist()
    [1.0, 0.0]
    """
    whole: Any = np.int64 if first.dtype == np.float64 else np.int32
    places = []
    for numbers in (first, second):
        bits = np.ascontiguousarray(numbers).view(whole).astype(object)
        # Negative numbers count downwards from zero.
        places.append(np.where(bits < 0, np.iinfo(whole).min - bits, bits))
    units = np.abs(places[0] - places[1]).astype(np.float64)
    return np.where(np.isnan(first) | np.isnan(second), np.where(units == 0, 0.0, np.inf), units)


def _compare(name: str, mine: pa.Array, theirs: pa.Array) -> list[Difference]:
    if mine.equals(theirs):
        return []
    if pa.types.is_floating(mine.type) and not mine.null_count and not theirs.null_count:
        return [_measure(f"column {name!r}", np.asarray(mine), np.asarray(theirs))]
    pairs = list(zip(mine.to_pylist(), theirs.to_pylist(), strict=True))
    if name == "about":
        return [each for a, b in pairs if a != b for each in _compare_descriptions(a, b)]
    count = sum(a != b for a, b in pairs)
    return [Difference(f"column {name!r} in {count:,} of {len(pairs):,} rows")]


def _measure(field: str, mine: NDArray[Any], theirs: NDArray[Any]) -> Difference:
    units = float(count_units(mine, theirs).max())
    limit = _LAST_BITS if mine.dtype == np.float64 else _LAST_BITS_SHORT
    return Difference(field, units, is_small=units <= limit)


def _compare_descriptions(mine: str | None, theirs: str | None) -> list[Difference]:
    """Return the entries of two JSON objects that differ."""
    whole = [Difference("column 'about'")]
    try:
        first, second = json.loads(mine or ""), json.loads(theirs or "")
    except (ValueError, RecursionError):
        return whole
    if not isinstance(first, dict) or not isinstance(second, dict) or list(first) != list(second):
        return whole
    found = []
    for key in second:
        a, b, field = first[key], second[key], f"{key!r} of a model"
        if isinstance(a, float) and isinstance(b, float):
            if a != b:
                found.append(_measure(field, np.array([a]), np.array([b])))
        elif a != b or type(a) is not type(b):
            found.append(Difference(field))
    # The same numbers in another spelling are not what a release writes.
    return found if found and json.dumps(first) == mine else whole
