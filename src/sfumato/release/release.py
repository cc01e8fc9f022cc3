"""A release: the table and everything that proves it, made from noisy answers by a pure function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core.engine.arrays import read_parquet
from sfumato.core.errors import ReleaseError
from sfumato.core.files import write_folder
from sfumato.core.questions.measurement import Answer, Ask, Measurement
from sfumato.recipes.base import MOST_ANSWERS, Plan, Product, follow_recipe
from sfumato.release.certificate import build_certificate, list_notes, pack_json, sum_costs
from sfumato.release.files import PackedAnswers
from sfumato.release.folder import check_folder
from sfumato.release.writeup import build_writeup
from sfumato.tables.contents import table_to_csv, table_to_parquet
from sfumato.tables.read import to_polars

if TYPE_CHECKING:
    import pyarrow as pa


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
