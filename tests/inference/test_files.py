import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato import ReleaseError
from sfumato.core.errors import RecipeError
from sfumato.inference import Domain, Measurement, Model, build_tree, estimate
from sfumato.inference.files import pack_model, quantise, unpack_models

DOMAIN = Domain({"a": 3, "b": 4, "c": 2, "d": 5})


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(7)
    noisy = [
        Measurement(columns=columns, values=random.normal(40, 10, DOMAIN.cells(columns)), sigma=10.0)
        for columns in (("a", "b"), ("b", "c"), ("c", "d"))
    ]
    return estimate(DOMAIN, noisy, seed=11)


def same(left, right):
    assert left.tree == right.tree
    assert left.values.tobytes() == right.values.tobytes()
    for name in ("total", "loss", "evaluations", "seed"):
        assert getattr(left, name) == getattr(right, name)
        assert type(getattr(left, name)) is type(getattr(right, name))


@pytest.mark.parametrize("prepare", [lambda model: model, quantise], ids=["as it is", "quantised"])
def test_models_read_back_bit_by_bit(model, prepare):
    models = {"1": prepare(model), "0.5": quantise(model)}
    payload = pack_model(models)
    again = unpack_models(payload)
    assert list(again) == ["1", "0.5"]
    for key, each in models.items():
        same(again[key], each)
    assert pack_model(again) == payload


def test_the_rows_of_a_quantised_model_follow_from_its_file(model):
    small = quantise(model)
    again = unpack_models(pack_model({"1": small}))["1"]
    for name, codes in small.sample().items():
        assert np.array_equal(codes, again.sample()[name])


def test_quantising_changes_next_to_nothing_and_only_once(model):
    small = quantise(model)
    assert np.abs(small.values - model.values).max() <= 2.0**-24 * model.values.max()
    same(quantise(small), small)
    wide = Model(build_tree(DOMAIN, []), np.full(14, 1e39), total=1e40)
    with pytest.raises(RecipeError, match="more records"):
        quantise(wide)


def test_a_quantised_model_takes_half_the_file():
    domain = Domain({"a": 100, "b": 100})
    values = np.random.default_rng(1).exponential(1.0, 10_000)
    model = Model(build_tree(domain, [("a", "b")]), values, total=float(values.sum()))
    assert len(pack_model({"1": quantise(model)})) < 0.55 * len(pack_model({"1": model}))


@given(st.data())
def test_any_tree_reads_back(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    domain = Domain({f"c{place}": size for place, size in enumerate(sizes)})
    subsets = st.lists(st.sampled_from(list(domain)), min_size=1, max_size=3, unique=True).map(tuple)
    tree = build_tree(domain, data.draw(st.lists(subsets, max_size=4)))
    values = np.concatenate([np.full(domain.cells(each), 12.0 / domain.cells(each)) for each in tree.cliques])
    model = Model(tree, values, total=12.0)
    same(unpack_models(pack_model({"1": model}))["1"], model)


def test_nothing_and_too_much_are_not_packed(model):
    with pytest.raises(RecipeError, match="between 1 and"):
        pack_model({})
    with pytest.raises(RecipeError, match="between 1 and"):
        pack_model({str(key): model for key in range(101)})


def rewrite(payload, change):
    """The file again after a change to its columns, given as lists."""
    table = pq.read_table(io.BytesIO(payload))
    columns = {name: table[name].to_pylist() for name in table.column_names}
    change(columns)
    types = {"model": pa.string(), "clique": pa.int32(), "value": pa.float64(), "about": pa.string()}
    table = pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()})
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    return sink.getvalue()


def about(**changes):
    def change(columns):
        columns["about"][0] = json.dumps({**json.loads(columns["about"][0]), **changes})

    return change


def entry(name, place, value):
    def change(columns):
        columns[name][place] = value

    return change


def rename(columns):
    columns["values"] = columns.pop("value")


def cut(columns):
    for name in columns:
        columns[name] = columns[name][:-1]


def empty(columns):
    for name in columns:
        columns[name] = []


def scale(columns):
    columns["value"] = [2 * value for value in columns["value"]]


def shift(columns):
    # The sum stays, the marginal that a neighbour shares does not.
    columns["value"][0], columns["value"][1] = columns["value"][0] + columns["value"][1], 0.0


def drop_facts(columns):
    columns["about"][0] = json.dumps({"format": "sfumato model 1"})


HOSTILE = {
    "a renamed column": rename,
    "a row too few": cut,
    "no row": empty,
    "a negative value": entry("value", 3, -1.0),
    "a value that is no number": entry("value", 3, float("nan")),
    "an infinite value": entry("value", 3, float("inf")),
    "a missing value": entry("value", 3, None),
    "another total": scale,
    "tables that disagree": shift,
    "cliques out of order": entry("clique", 0, 2),
    "a second description": entry("about", 5, "{}"),
    "no description": entry("about", 0, None),
    "a description that is no JSON": entry("about", 0, "{"),
    "a description that is nested": entry("about", 0, "[" * 100_000),
    "a short description": drop_facts,
    "another format": about(format="sfumato model 2"),
    "a model in two parts": entry("model", 5, "2"),
    "huge sizes": about(domain=[["a", 2**62], ["b", 4], ["c", 2], ["d", 5]]),
    "sizes that are no numbers": about(domain=[["a", "3"], ["b", 4], ["c", 2], ["d", 5]]),
    "a column twice": about(domain=[["a", 3], ["a", 3], ["b", 4], ["c", 2], ["d", 5]]),
    "an unknown column": about(cliques=[["a", "b"], ["b", "c"], ["c", "x"]]),
    "a column nowhere": about(cliques=[["a", "b"], ["b", "c"], ["c"]]),
    "names that are no text": about(cliques=[[["a"], "b"], ["b", "c"], ["c", "d"]]),
    "a parent of itself": about(parents=[-1, 1, 1]),
    "two roots": about(parents=[-1, -1, 1]),
    "parents that are no numbers": about(parents=[-1, 0.5, 1]),
    "a parent too few": about(parents=[-1, 0]),
    "another separator": about(separators=[[], [], []]),
    "a total that is no number": about(total="many"),
    "no total": about(total=float("nan")),
    "a negative loss": about(loss=-1.0),
    "a seed that is no number": about(seed=True),
    "nothing but a list": entry("about", 0, "[]"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused(model, change):
    payload = pack_model({"1": model})
    with pytest.raises(ReleaseError, match="holds no model that can be used"):
        unpack_models(rewrite(payload, change))


def test_an_untouched_file_survives_the_same_treatment(model):
    same(unpack_models(rewrite(pack_model({"1": model}), lambda _: None))["1"], model)


def test_no_junction_tree_is_refused(model):
    # Every edge is right, but a is in two cliques that no path of cliques with a joins.
    domain = Domain({"a": 2, "b": 2, "c": 2})
    tree = build_tree(domain, [("a", "b"), ("b", "c")])
    broken = type(tree)(
        domain=domain,
        cliques=(("a", "b"), ("b", "c"), ("a", "c")),
        parents=(-1, 0, 1),
        separators=((), ("b",), ("c",)),
    )
    with pytest.raises(ReleaseError, match="no junction tree"):
        unpack_models(pack_model({"1": Model(broken, np.ones(12), total=4.0)}))


@pytest.mark.parametrize("payload", [b"", b"PAR1", b"no parquet at all" * 50, b"\x00" * 1000])
def test_bytes_that_are_no_table_are_refused(payload):
    with pytest.raises(ReleaseError):
        unpack_models(payload)


def test_damaged_bytes_are_refused_or_give_a_valid_model(model):
    payload = pack_model({"1": quantise(model)})
    random = np.random.default_rng(3)
    for _ in range(200):
        damaged = bytearray(payload)
        damaged[random.integers(len(damaged))] ^= 1 << int(random.integers(8))
        try:
            again = unpack_models(bytes(damaged))
        except ReleaseError:
            continue
        assert all(np.isfinite(each.values).all() for each in again.values())
