"""k, l and t beside pycanon, which is no dependency: where it is not installed, this is skipped.

It leaves out records with a missing quasi-identifier, so tables here have none. Its entropy l is rounded
down, its delta passes over values that a class lacks, and its recursive diversity compares the rarest value
instead of the most frequent one, so that is not compared.
"""

import math
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.anonymity.check import measure_anonymity

peer = pytest.importorskip("pycanon.anonymity", reason="pycanon, the second judge, is not installed")
pandas = pytest.importorskip("pandas", reason="pandas, which pycanon needs, is not installed")


def compare(table, quasi, sensitive):
    """Asserts that both judges agree; numbers are compared by the ordered distance, as the peer does."""
    numbers = [name for name in sensitive if not pa.types.is_string(table.schema.field(name).type)]
    found = measure_anonymity(
        table, quasi_identifiers=quasi, sensitive=sensitive, distance=dict.fromkeys(numbers, "ordered")
    )
    frame = table.to_pandas()
    assert found.k == peer.k_anonymity(frame, quasi)
    assert found.l == peer.l_diversity(frame, quasi, sensitive)
    theirs = peer.entropy_l_diversity(frame, quasi, sensitive)
    assert theirs in {int(found.entropy_l * (1 - 1e-9)), int(found.entropy_l * (1 + 1e-9))}
    assert found.t == pytest.approx(peer.t_closeness(frame, quasi, sensitive), abs=1e-9)
    delta = peer.delta_disclosure(frame, quasi, sensitive)
    assert found.delta_disclosure == pytest.approx(delta) or math.isinf(found.delta_disclosure)


@pytest.mark.parametrize("seed", range(25))
def test_judges_agree_on_random_tables(seed):
    source = random.Random(seed)
    rows = source.choice([5, 30, 200])
    columns = {
        "a": [source.choice(["x", "y", "*"]) for _ in range(rows)],
        "b": [source.randrange(2) for _ in range(rows)],
        # Two values at least, one of which the peer could not divide by.
        "s": ["u", "v"] + [source.choice("uvw") for _ in range(rows - 2)],
        "n": [0, 9] + [source.randrange(10) for _ in range(rows - 2)],
    }
    compare(pa.table(columns), ["a", "b"], ["s"])
    compare(pa.table(columns), ["a"], ["n"])
    compare(pa.table(columns), ["b"], ["s", "n"])


@pytest.mark.shared
@pytest.mark.parametrize("quasi", [["sex"], ["race", "sex"], ["education", "marital-status", "sex"]])
def test_judges_agree_on_the_census(shared, quasi):
    table = pq.read_table(shared / "data" / "adult" / "adult.parquet").slice(0, 5000)
    table = table.select([*quasi, "income", "hours-per-week"])
    table = pa.table(
        {
            n: c.cast(pa.string()) if c.type == pa.large_string() else c
            for n, c in zip(table.column_names, table.columns, strict=True)
        }
    )
    compare(table, quasi, ["income"])
    compare(table, quasi, ["hours-per-week"])
