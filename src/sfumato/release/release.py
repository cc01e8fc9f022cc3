"""A release: the table and everything that proves it, made from noisy answers by a pure function.

The write-up has four sections, with the numbers of one release and the proof of its bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core.errors import ReleaseError
from sfumato.core.exact import format_exact, round_up
from sfumato.core.law import SHAPES
from sfumato.core.questions.measurement import (
    Answer,
    Ask,
    Measurement,
    Request,
    ask_cost,
    request_grid,
    request_size,
)
from sfumato.recipes.base import FILE_KEYS, MOST_ANSWERS, Plan, Product, follow_recipe
from sfumato.release.certificate import build_certificate, list_notes, pack_json, sum_costs
from sfumato.release.files import PackedAnswers
from sfumato.release.folder import check_folder, write_folder
from sfumato.tables.arrays import read_parquet
from sfumato.tables.read import table_to_csv, table_to_parquet, to_polars

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.core.facts.table import PrivacyUnit, Table
    from sfumato.recipes.base import Plan


_DIGEST = re.compile(r"\(sha256 [0-9a-f]{64}\)$")


def build_writeup(
    plan: Plan,
    answers: tuple[Answer, ...],
    *,
    total: Mapping[str, Any],
    ledger: Mapping[str, Any],
    notes: list[str],
) -> bytes:
    """Return the write-up of a release of `plan` as Markdown.

    It describes the noisy `answers`, their `total` cost, the `ledger` entry of the charge, and the `notes`.
    """
    asks = tuple(answer.ask for answer in answers)
    described = plan.recipe.describe(plan)
    sections = [
        f"# Privacy write-up: {plan.recipe.kind} of `{plan.table.name}`",
        _summary(plan, total),
        *(f"**Note:** {note}." for note in notes),
        "## Main idea",
        described["idea"],
        "## Pre-processing",
        described["preprocessing"],
        described.get("bounding") or _bounding(plan.table),
        _public_facts(plan),
        "## Privatisation and proof",
        described.get("sensitivity") or _sensitivity(plan),
        _noise_table(plan.table, asks),
        described.get("privatisation", ""),
        _parts(plan),
        _composition(plan, asks, total),
        "## Post-processing",
        described["postprocessing"],
        "## How to check",
        _checking(ledger),
    ]
    return ("\n\n".join(section for section in sections if section) + "\n").encode()


def _summary(plan: Plan, total: Mapping[str, Any]) -> str:
    readings = ", ".join(
        f"epsilon {epsilon} at delta {delta}" for delta, epsilon in total["epsilon_at_delta"].items()
    )
    pure = f"**epsilon = {total['epsilon']}** (pure), " if total["epsilon"] is not None else ""
    unit = plan.table.unit
    whole = f"{unit.column}, with all its records, {unit.neighbours}"
    protected = f"one individual ({unit.describe() if plan.table.family is None else whole})"
    if unit.period is not None:
        protected = (
            f"**what one `{unit.column}` did in one `{unit.period}`, and not all that it did** "
            f"({unit.describe()}). Whoever has records in k values of `{unit.period}` is protected as by k "
            "times the epsilon"
        )
    if unit.window is not None:
        protected += _renewal(unit)
    return (
        f"What is protected: {protected}. "
        f"What this release spends: {pure}rho = {_up(total['rho'])}; {readings}."
    )


def _renewal(unit: PrivacyUnit) -> str:
    """Return the promise of a budget that renews, in full."""
    first, last = unit.window or ("", "")
    return (
        f". Only records of `{unit.period}` from {first} to {last} were read; the code sees to it. **The "
        "budget renews:** it is the most that all releases together, of this and any other window, tell "
        f"about one `{unit.column}`'s records of one `{unit.period}`, and each new `{unit.period}` has it "
        f"whole. It is no bound on what is told about one `{unit.column}` over all time, which grows with "
        f"every `{unit.period}` that it has records in"
    )


def _bounding(table: Table) -> str:
    unit = table.unit
    if unit.column is None:
        return "Every row is an individual of its own, so nobody contributes more than one record."
    if table.bounding == "weight":
        how = (
            f"A record of an individual with R records counts min(1, {unit.max_records}/R), rounded down "
            f"to a multiple of 1/{table.grid}"
        )
    else:
        how = (
            f"Of an individual with more than {unit.max_records} records, {unit.max_records} are kept, "
            "in the order of a digest of that individual's identifier and the record's own codes"
        )
    if unit.period is not None:
        how += f". Here an individual is one `{unit.column}` in one `{unit.period}`"
    whose = ""
    if table.reference is not None:
        names = (
            f"`{table.reference.column}` and `{table.reference.key}` of table `{table.reference.table.name}`"
        )
        whose = f" Whose a record is follows from {names}: it counts once for everybody who holds its key."
    return (
        f"Contributions are bounded by code, not by assumption. {how}. The rule looks at one individual's "
        f"records at a time and never at anybody else's. Records without `{unit.column}` are dropped.{whose}"
    )


def _public_facts(plan: Plan) -> str:
    lines = ["Taken as public:", ""]
    for name in plan.columns:
        column = plan.table.columns[name]
        warning = (
            " **This domain was drafted from the data and accepted by the data holder; it is not covered "
            "by the guarantee.**"
            if column.drafted
            else ""
        )
        lines.append(
            f"- `{name}`: {column.size} values, from {column.origin}; a value outside the domain: "
            f"{column.outside}.{warning}"
        )
    return "\n".join([*lines, *_public_files(plan)])


def _public_files(plan: Plan) -> list[str]:
    """Return the files that were read as public, with their digests, and what nobody can check of them."""
    recipe = plan.recipe.to_record()
    read = [recipe[key] for key in FILE_KEYS if isinstance(recipe.get(key), Mapping)]
    files = [f"`{each['file']}` (sha256 {each['sha256']})" for each in read]
    origins = [plan.table.columns[name].origin for name in plan.columns]
    files += [origin for origin in origins if _DIGEST.search(origin)]
    if not files:
        return []
    return [
        "",
        f"Read as public: {'; '.join(dict.fromkeys(files))}. None of them is a source of records, by any "
        "name or as a plain copy; a copy of the records in another form cannot be recognised, so that "
        "they are about nobody in the table is the data holder's word.",
    ]


def _sensitivity(plan: Plan) -> str:
    table = plan.table
    bound = f"{table.unit.max_records}"
    grid = "" if table.grid == 1 else f" (counted in units of 1/{table.grid}: {table.contribution})"
    text = (
        f"Let D and D' be tables that differ by one individual, added or removed with all records. That "
        f"individual adds a non-negative vector v to the histogram, and the sum of v over all cells is at "
        f"most {bound}{grid}, because it has at most that many records after bounding and each falls into "
        "one cell. All other records are bounded and counted as before. So the L1 distance of the two "
        f"histograms is at most {bound}, and so is the L2 distance, since |v|2 <= |v|1 (with equality when "
        "all records fall into one cell)."
    )
    if table.unit.neighbours == "replace":
        text += (
            " Here neighbours exchange one individual for another: the difference is v - v', so the L1 "
            "distance is at most twice as large, and the L2 distance at most sqrt(2) times, because v and "
            "v' have no negative entries."
        )
    return text


def _noise_table(table: Table, asks: tuple[Ask, ...]) -> str:
    lines = [
        "| measurement | cells | noise | scale | sensitivity | epsilon | rho | typical error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ask in asks:
        cost = ask_cost(table, ask)
        epsilon = "-" if cost.epsilon is None else format_exact(cost.epsilon)
        if not isinstance(ask, Request):
            lines.append(
                f"| {ask.name} | one of {ask.options:,} | exponential mechanism | - | - "
                f"| {epsilon} | {_up(cost.rho)} | - |"
            )
            continue
        grid = request_grid(table, ask)
        cells = request_size(table, ask) if ask.threshold is None else table.cells(ask.columns)
        lines.append(
            f"| {ask.name} | {cells:,} | discrete {ask.noise} "
            f"| {_short(ask, grid)} | {float(cost.sensitivity) / grid:.6g} "
            f"({cost.norm}) | {epsilon} | {_up(cost.rho)} "
            f"| +-{ask.law.half_width() / grid:.4g} in 95 % of cells |"
        )
    return "\n".join(lines)


def _parts(plan: Plan) -> str:
    """Return who was asked what, where people were split into parts."""
    if not plan.parts:
        return ""
    shares = ", ".join(f"{part.name!r} ({float(part.share):.0%})" for part in plan.parts)
    by = (
        "its name"
        if plan.table.unit.column is not None
        else "the codes of its record, and its number among the records that have the same"
    )
    text = (
        f"The people were split into parts: {shares}. Which part an individual is in follows from a public "
        f"digest of {by}; so one individual more changes one part only, and moves nobody else. The model was "
        "fitted to the first part and judged by the last. The costs of questions to one part add up, and "
        "the largest of these sums is charged: an individual pays for its own part alone "
        "(docs/proofs/parallel.md)."
    )
    if len(plan.parts) > 2:
        text += (
            " Candidates were fitted and compared, each with its share of what is charged; all of them are "
            "paid for, whichever was taken."
        )
    if plan.table.unit.neighbours == "replace":
        text += (
            " Where the two who are exchanged are in different parts, each costs at most half of what its "
            "part was charged for an exchange, so that the largest sum covers both."
        )
    return text


def _composition(plan: Plan, asks: tuple[Ask, ...], total: Mapping[str, Any]) -> str:
    kinds = {ask.noise for ask in asks if isinstance(ask, Request)}
    parts = [shape.claim for kind, shape in SHAPES.items() if kind in kinds]
    if not all(isinstance(ask, Request) for ask in asks):
        parts.append(
            "The exponential mechanism draws a candidate in proportion to exp(epsilon * score / 2s), where "
            "one individual moves every score by at most s: it is epsilon-DP, and epsilon^2/8-zCDP (Cesar "
            "and Rogers 2021)."
        )
    count = len(asks)
    many = (
        f"The {count} measurements are taken of the same table, so their costs add up"
        + (" within each part." if plan.parts else ".")
        if count > 1
        else "There is one measurement, so its cost is the cost of the release."
    )
    if plan.stepwise:
        many += (
            " Each was chosen on seeing the answers before it, and was charged by itself before it was "
            "answered: what is spent is the sum of what was asked, and no level that was tried on the way "
            "is lost (docs/proofs/refinement.md)."
        )
    elif plan.allowance is not None:
        many += (
            " Each was chosen on seeing the answers before it; the charge was made before the first, and "
            "every batch was held to what was left of it."
        )
    pure = f"epsilon {total['epsilon']} and " if total["epsilon"] is not None else ""
    parts.append(f"{many} In total: {pure}rho {_up(total['rho'])}.")
    return " ".join(parts)


def _checking(ledger: Mapping[str, Any]) -> str:
    earlier = [str(each["sequence"]) for each in ledger.get("earlier", ())]
    before = f" Earlier steps are entries {', '.join(earlier)}." if earlier else ""
    return (
        "`sfumato verify` on this folder derives the plan, the sensitivities, the totals and the released "
        "table again, from `certificate.json` and `measurements.parquet` alone, and compares. The charge is "
        f"entry {ledger['sequence']} of the ledger, with digest `{ledger['hash'][:16]}`.{before}"
    )


def _short(request: Request, grid: int) -> str:
    scale = request.scale / grid
    text = format_exact(scale)
    return text if len(text) <= 12 else f"{float(scale):.6f}"


def _up(number: Fraction | str) -> str:
    """Return a privacy amount for people: short, and never below the true one."""
    exact = Fraction(number)
    places = 6 - len(str(int(exact))) if exact >= 1 else 6
    return format_exact(round_up(exact, places=max(0, places) + (6 if exact < Fraction(1, 1000) else 0)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """A finished release: the noisy table, its answers, its certificate and its files.

    `repeated` tells that it was stored before and cost nothing, `resumed` that it was begun before and
    finished under the charge made then. `notes` are what public facts say of it that was known before.
    """

    table: pa.Table
    answers: tuple[Answer, ...]
    certificate: Mapping[str, Any]
    files: Mapping[str, bytes]
    folder: Path | None = None
    repeated: bool = False
    resumed: bool = False
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        spent = "nothing (repeated)" if self.repeated else self.certificate["total"]
        return f"Release({self.table.num_rows} rows, spent {spent})"

    def _repr_html_(self) -> str:
        from sfumato.report.pages.notebook import MOST_ROWS, render_table

        return render_table(
            f"Release: {self.certificate['plan']['recipe']['recipe']}",
            self.table.column_names,
            [tuple(row.values()) for row in self.table.slice(0, MOST_ROWS).to_pylist()],
            count=self.table.num_rows,
            facts={
                "guarantee": _tell_total(self.certificate["total"]),
                "spent now": "nothing; it was stored" if self.repeated else "as charged",
                **({} if self.folder is None else {"folder": self.folder.name}),
            },
            notes=(*self.notes, *self.certificate.get("notes", ())),
        )

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Return the answers that are noisy values, without the choices."""
        return tuple(answer for answer in self.answers if isinstance(answer, Measurement))

    @property
    def parents(self) -> pa.Table | None:
        """Return the table of parents, if the rows are their children."""
        packed = self.files.get("parents.parquet")
        return None if packed is None else read_parquet(packed)

    def to_arrow(self) -> pa.Table:
        """Return the released table as an Arrow table."""
        return self.table

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency
        """Return the released table as a pandas frame; pandas must be installed."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401 - polars is not a dependency
        """Return the released table as a polars frame; polars must be installed."""
        return to_polars(self.table)

    def write(self, out: Path | str, *, force: bool = False) -> None:
        """Writes the release to the folder `out`, whole or not at all."""
        check_folder(Path(out), force=force)
        write_folder(Path(out), self.files)


def _tell_total(total: Mapping[str, Any]) -> str:
    """Return the guarantee in a line: pure epsilon, or what it is at the deltas that a certificate states."""
    if total["epsilon"] is not None:
        return f"epsilon {total['epsilon']}"
    return ", ".join(f"epsilon {epsilon} at delta {at}" for at, epsilon in total["epsilon_at_delta"].items())


def derive_files(
    plan: Plan, answers: tuple[Answer, ...], product: Product, *, ledger: Mapping[str, Any], notes: list[str]
) -> dict[str, bytes]:
    """Return files that follow from the `plan`, its noisy `answers` and the `ledger` entry, and nothing else.

    `product` is what the recipe made of the answers, `notes` what `list_notes` finds in them.
    """
    with ThreadPoolExecutor(1) as pool:
        parquet = pool.submit(table_to_parquet, product.table, varied=product.varied)
        csv = table_to_csv(product.table)
        files = {"table.parquet": parquet.result(), "table.csv": csv}
    total = sum_costs(plan.charged(answer.ask for answer in answers), delta=plan.delta)
    files["writeup.md"] = build_writeup(plan, answers, total=total, ledger=ledger, notes=notes)
    return {**files, **product.files}


def build_release(
    plan: Plan,
    answers: tuple[Answer, ...],
    product: Product,
    *,
    ledger: Mapping[str, Any],
    packed: Callable[[], bytes],
) -> Release:
    """Return the release of `plan`: its noisy `answers`, and the `product` that the recipe made of them.

    `ledger` describes the entry of its charge; `packed` gives the packed answers once they are stored.
    """
    notes = list_notes(plan.table, answers)
    files = derive_files(plan, answers, product, ledger=ledger, notes=notes)
    files["measurements.parquet"] = packed()
    certificate = build_certificate(
        plan, answers, ledger=ledger, files=files, facts=product.facts, notes=notes
    )
    files["certificate.json"] = pack_json(certificate)
    return Release(table=product.table, answers=answers, certificate=certificate, files=files)


def repeat_release(
    plan: Plan, packed: bytes, *, ledger: Mapping[str, Any], progress: Callable[[str], None] = lambda _: None
) -> Release:
    """Return the release of `plan` once more, from answers that were kept."""
    answers, product = replay_answers(plan, packed, progress=progress)
    return build_release(plan, answers, product, ledger=ledger, packed=lambda: packed)


def replay_answers(
    plan: Plan,
    packed: bytes,
    *,
    most: int = MOST_ANSWERS,
    batches: list[tuple[Answer, ...]] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[tuple[Answer, ...], Product]:
    """Return the recipe followed once more: `packed` must answer exactly what it asks, in order.

    The answers are also added to `batches` as they were asked for.
    """
    rows = PackedAnswers((packed,), plan.table, rows=most)

    def take(asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        answers = rows.take(asks)
        if batches is not None:
            batches.append(answers)
        return answers

    answers, product = follow_recipe(plan, answer=take, progress=progress)
    if rows.left:
        raise ReleaseError(f"measurements.parquet has {rows.left:,} rows more than its plan asks for")
    return answers, product
