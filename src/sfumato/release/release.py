"""A release: the table and everything that proves it, made from measurements by a pure function."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.release.certificate import build_certificate, pack_json, sum_costs
from sfumato.release.files import (
    pack_measurements,
    table_to_csv,
    table_to_parquet,
    unpack_measurements,
)
from sfumato.release.folder import write_folder
from sfumato.release.writeup import build_writeup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from sfumato.measurement import Measurement
    from sfumato.recipes import Plan

__all__ = ["Release", "build_release", "derive_files", "repeat_release"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """A finished release: the noisy table, its measurements, its certificate and its files."""

    table: pa.Table
    measurements: tuple[Measurement, ...]
    certificate: Mapping[str, Any]
    files: Mapping[str, bytes]
    folder: Path | None = None
    repeated: bool = False

    def __repr__(self) -> str:
        spent = "nothing (repeated)" if self.repeated else self.certificate["total"]
        return f"Release({self.table.num_rows} rows, spent {spent})"

    def to_arrow(self) -> pa.Table:
        """The released table as an Arrow table."""
        return self.table

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency
        """The released table as a pandas frame; pandas must be installed."""
        return self.table.to_pandas()

    def write(self, out: Path | str, *, force: bool = False) -> None:
        """Writes the release to the folder `out`, whole or not at all."""
        write_folder(Path(out), self.files, force=force)


def derive_files(
    plan: Plan, measurements: tuple[Measurement, ...], *, ledger: Mapping[str, Any]
) -> tuple[pa.Table, dict[str, bytes]]:
    """The released table and its files: a pure function of plan, noisy values and ledger entry."""
    table = plan.recipe.finish(plan, measurements)
    with ThreadPoolExecutor(1) as pool:
        parquet = pool.submit(table_to_parquet, table, varied=("count",))
        csv = table_to_csv(table)
        files = {"table.parquet": parquet.result(), "table.csv": csv}
    total = sum_costs(plan.costs, delta=plan.delta)
    files["writeup.md"] = build_writeup(plan, total=total, ledger=ledger)
    return table, files


def build_release(
    plan: Plan,
    measurements: tuple[Measurement, ...],
    *,
    ledger: Mapping[str, Any],
    keep: Callable[[bytes], None],
) -> Release:
    """The release of `plan` from its measurements; `keep` is given them packed, to store them."""
    with ThreadPoolExecutor(1) as pool:
        # Storing waits for the disk, post-processing for the processor.
        derivation = pool.submit(derive_files, plan, measurements, ledger=ledger)
        packed = pack_measurements(measurements)
        keep(packed)
        table, derived = derivation.result()
    return _assemble(plan, measurements, packed, table, derived, ledger=ledger)


def repeat_release(plan: Plan, packed: bytes, *, ledger: Mapping[str, Any]) -> Release:
    """The release of `plan` once more, from measurements that were kept."""
    measurements = unpack_measurements(packed, plan.requests, plan.table)
    table, derived = derive_files(plan, measurements, ledger=ledger)
    release = _assemble(plan, measurements, packed, table, derived, ledger=ledger)
    return replace(release, repeated=True)


def _assemble(
    plan: Plan,
    measurements: tuple[Measurement, ...],
    packed: bytes,
    table: pa.Table,
    derived: Mapping[str, bytes],
    *,
    ledger: Mapping[str, Any],
) -> Release:
    files = {**derived, "measurements.parquet": packed}
    certificate = build_certificate(plan, ledger=ledger, files=files)
    files["certificate.json"] = pack_json(certificate)
    return Release(table=table, measurements=measurements, certificate=certificate, files=files)
