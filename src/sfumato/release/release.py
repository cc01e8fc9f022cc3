"""A release: the table and everything that proves it, made from noisy answers by a pure function.

The write-up has four sections, with the numbers of one release and the proof of its bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
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
from sfumato.recipes.base import FILE_KEYS, MOST_ANSWERS, Plan, Product, follow_recipe, write_part
from sfumato.release.certificate import build_certificate, list_notes, pack_json, sum_costs
from sfumato.release.folder import OpenedRelease, PackedAnswers, check_folder, write_folder
from sfumato.tables.arrays import read_parquet
from sfumato.tables.read import table_to_csv, table_to_parquet, to_polars

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.core.facts.table import Table
    from sfumato.recipes.base import Plan


_DIGEST = re.compile(r"\(sha256 [0-9a-f]{64}\)$")
_write = partial(write_part, "release")


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
    told = unit.describe() if plan.table.family is None else whole
    facts = {"column": unit.column, "period": unit.period, "unit": told}
    protected = _write("individual" if unit.period is None else "in_period", **facts)
    if unit.window is not None:
        protected += _write("renewal", first=unit.window[0], last=unit.window[1], **facts)
    return _write("summary", protected=protected, pure=pure, rho=_up(total["rho"]), readings=readings)


def _bounding(table: Table) -> str:
    unit, reference = table.unit, table.reference
    if unit.column is None:
        return _write("rows")
    facts = {"most": unit.max_records, "column": unit.column, "period": unit.period}
    how = _write("weighed" if table.bounding == "weight" else "kept", grid=table.grid, **facts)
    if unit.period is not None:
        how += _write("here", **facts)
    whose = ""
    if reference is not None:
        whose = _write("whose", column=reference.column, key=reference.key, table=reference.table.name)
    return _write("bounding", how=how, whose=whose, **facts)


def _public_facts(plan: Plan) -> str:
    """Return what was taken as public: domains, and files with their digests, which nobody can check."""
    lines = ["Taken as public:", ""]
    for name in plan.columns:
        column = plan.table.columns[name]
        warning = _write("drafted") if column.drafted else ""
        lines.append(
            f"- `{name}`: {column.size} values, from {column.origin}; a value outside the domain: "
            f"{column.outside}.{warning}"
        )
    recipe = plan.recipe.to_record()
    read = [recipe[key] for key in FILE_KEYS if isinstance(recipe.get(key), Mapping)]
    files = [f"`{each['file']}` (sha256 {each['sha256']})" for each in read]
    origins = [plan.table.columns[name].origin for name in plan.columns]
    files += [origin for origin in origins if _DIGEST.search(origin)]
    if files:
        lines += ["", _write("files", files="; ".join(dict.fromkeys(files)))]
    return "\n".join(lines)


def _sensitivity(plan: Plan) -> str:
    table = plan.table
    grid = "" if table.grid == 1 else f" (counted in units of 1/{table.grid}: {table.contribution})"
    text = _write("sensitivity", bound=table.unit.max_records, grid=grid)
    return text + (_write("exchanged") if table.unit.neighbours == "replace" else "")


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
    by = _write("by_row" if plan.table.unit.column is None else "by_name")
    text = _write("parts", shares=shares, by=by)
    if len(plan.parts) > 2:
        text += _write("candidates")
    return text + (_write("parts_exchanged") if plan.table.unit.neighbours == "replace" else "")


def _composition(plan: Plan, asks: tuple[Ask, ...], total: Mapping[str, Any]) -> str:
    kinds = {ask.noise for ask in asks if isinstance(ask, Request)}
    parts = [shape.claim for kind, shape in SHAPES.items() if kind in kinds]
    if not all(isinstance(ask, Request) for ask in asks):
        parts.append(_write("choices"))
    many = _write("one")
    if len(asks) > 1:
        many = _write("many", count=len(asks), within=" within each part" if plan.parts else "")
    if plan.stepwise:
        many += _write("stepwise")
    elif plan.allowance is not None:
        many += _write("allowed")
    pure = f"epsilon {total['epsilon']} and " if total["epsilon"] is not None else ""
    parts.append(f"{many} In total: {pure}rho {_up(total['rho'])}.")
    return " ".join(parts)


def _checking(ledger: Mapping[str, Any]) -> str:
    earlier = [str(each["sequence"]) for each in ledger.get("earlier", ())]
    before = f" Earlier steps are entries {', '.join(earlier)}." if earlier else ""
    return _write("checking", sequence=ledger["sequence"], digest=ledger["hash"][:16], before=before)


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
                "guarantee": tell_total(self.certificate["total"]),
                "spent now": "nothing; it was stored" if self.repeated else "as charged",
                **({} if self.folder is None else {"folder": self.folder.name}),
            },
            notes=(*self.notes, *self.certificate.get("notes", ())),
        )

    def plot(self, column: str | None = None, *, ax: Any = None) -> Any:  # noqa: ANN401 - matplotlib's axes
        """Return a picture of the records by `column`, by default by every one, with their noise.

        Of a model it is what each input does. With `ax`, axes of matplotlib, it is drawn there.
        """
        from sfumato.report.plots import plot_release

        return plot_release(self.certificate, self.table, self.files, column, ax=ax)

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

    def sample(
        self,
        where: str | None = None,
        *,
        rows: int | None = None,
        epsilon: object = None,
        seed: int | None = None,
    ) -> pa.Table:
        """Return synthetic rows from the model of the release that fit a condition; costs nothing.

        `epsilon` chooses the model where there are several.
        """
        from sfumato.release.ask import read_model  # loads the front end of SQL

        opened = OpenedRelease(name="the release", certificate=self.certificate, files=self.files)
        return read_model(opened, epsilon=epsilon).sample(where, rows=rows, seed=seed)

    def write(self, out: Path | str, *, force: bool = False) -> None:
        """Writes the release to the folder `out`, whole or not at all."""
        check_folder(Path(out), force=force)
        write_folder(Path(out), self.files)


def tell_total(total: Mapping[str, Any]) -> str:
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
