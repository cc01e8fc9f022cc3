"""Additive models: bad input, what they cost, what they learn, and that releases of them verify."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core.facts.table import parse_table
from sfumato.recipes import Additive
from sfumato.recipes.additive import find_family
from sfumato.recipes.base import follow_recipe

DELTA = Fraction(1, 10**6)
COLUMNS = {
    "age": {"range": [18, 89]},
    "job": {"values": ["a", "b", "c"]},
    "wage": {"bounds": [0, 1000]},
    "rich": {"values": ["no", "yes"]},
}
POOR = {**COLUMNS["rich"], "from": "rich"}


def describe(columns=COLUMNS, **facts):
    return parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns, **facts})


def plan(recipe, table=None, epsilon=Fraction(1), delta=DELTA):
    return recipe.plan(table or describe(), epsilons=(epsilon,), delta=delta)


def people(size=6000, seed=1):
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 90, size)
    job = generator.integers(0, 3, size)
    wage = np.clip(300 + 5 * age + 100 * job + generator.normal(0, 60, size), 0, 1000)
    score = (age - 50) / 8 + job - 1
    rich = generator.random(size) < 1 / (1 + np.exp(-score))
    return pa.table(
        {
            "age": age,
            "job": np.array(["a", "b", "c"])[job],
            "wage": wage,
            "rich": np.where(rich, "yes", "no"),
            "visits": generator.poisson(np.exp((age - 50) / 30), size),
        }
    )


def open_project(folder, rows, columns=COLUMNS, **facts):
    return sf.open(write_project(folder, columns, rows=rows, epsilon=2000, delta=1e-3, **facts))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": ""}, "target"),
        ({"target": "rich", "inputs": ["rich", "age"]}, "among the inputs"),
        ({"target": "rich", "inputs": ["age", "age"]}, "none twice"),
        ({"target": "rich", "inputs": []}, "none twice"),
        ({"target": "rich", "family": "trees"}, "family"),
        ({"target": "rich", "pairs": -1}, "pairs"),
        ({"target": "rich", "pairs": 2.0}, "pairs"),
        ({"target": "rich", "pairs": True}, "pairs"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(sf.RecipeError, match=words):
        Additive(table="t", **options)


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ({"target": "gone"}, COLUMNS, "describes no column 'gone'"),
        ({"target": "rich", "inputs": ["gone"]}, COLUMNS, "gone"),
        ({"target": "rich"}, {"rich": COLUMNS["rich"]}, "no column with a domain"),
        ({"target": "rich", "inputs": ["x"]}, {**COLUMNS, "x": {}}, "no public domain"),
        ({"target": "x"}, {**COLUMNS, "x": {}}, "needs values"),
        ({"target": "x"}, {**COLUMNS, "x": {"values": ["only"]}}, "2 to 20"),
        ({"target": "x"}, {**COLUMNS, "x": {"values": [f"v{i}" for i in range(30)]}}, "2 to 20"),
        ({"target": "job", "family": "regression"}, COLUMNS, "no number"),
        ({"target": "x", "family": "counts"}, {**COLUMNS, "x": {"range": [-3, 9]}}, "not negative"),
        ({"target": "rich", "inputs": ["poor"]}, {**COLUMNS, "poor": POOR}, "stored column"),
    ],
)
def test_what_cannot_be_learnt_is_refused_before_a_charge(options, columns, words):
    with pytest.raises(sf.SfumatoError, match=words):
        plan(Additive(table="t", **options), describe(columns))


def test_what_is_made_of_the_target_is_no_input():
    recipe = Additive(table="t", target="rich")
    assert "poor" not in recipe.find_inputs(describe({**COLUMNS, "poor": POOR}))


@pytest.mark.parametrize(
    ("target", "family"), [("rich", "classification"), ("job", "classification"), ("wage", "regression")]
)
def test_the_schema_says_what_kind_of_target_it_is(target, family):
    assert find_family(describe(), target, None) == family


class Answers:
    """Answers without records: noise alone, in the sizes that are asked for."""

    def __init__(self, table, size=1e5):
        self.table, self.size, self.asked = table, size, []

    def __call__(self, asks):
        from sfumato.core.questions.counts import Marginal
        from sfumato.core.questions.measurement import Measurement, request_grid, request_size

        given = []
        for ask in asks:
            self.asked.append(ask)
            generator = np.random.default_rng(len(self.asked))
            size = request_size(self.table, ask)
            values = generator.normal(0, float(ask.scale), size)
            if isinstance(ask.counted, Marginal):
                values = values + self.size * request_grid(self.table, ask) / size
            rounded = np.rint(values).astype(np.int64)
            given.append(Measurement(request=ask, noisy_values=rounded, grid=request_grid(self.table, ask)))
        return tuple(given)


def test_an_input_may_have_the_name_of_what_else_is_asked(tmp_path):
    rows = people(400).rename_columns(["weight", "spread", "intercept", "rich", "visits"])
    columns = {"weight": COLUMNS["age"], "spread": COLUMNS["job"], "rich": COLUMNS["rich"]}
    curator = open_project(tmp_path, rows, columns)
    curator.release(Additive(table="t", target="rich"), epsilon=2, delta=DELTA, out=tmp_path / "out")
    assert sf.verify(tmp_path / "out", ledger=curator.ledger_path)


def test_noise_alone_teaches_next_to_nothing():
    planned = plan(Additive(table="t", target="rich"))
    _, product = follow_recipe(planned, answer=Answers(planned.table), progress=lambda _: None)
    model = json.loads(product.files["model.json"])
    scores = [abs(each) for term in model["scores"][0]["terms"] for each in term["scores"]]
    assert max(scores) < 0.1 * 256


def test_a_class_is_learnt_and_the_release_verifies(tmp_path, seeded_noise):
    rows = people()
    curator = open_project(tmp_path, rows)
    recipe = Additive(table="t", target="rich", inputs=["age", "job"])
    model = curator.learn(recipe, epsilon=3, delta=1e-6, out=tmp_path / "model")
    chances = model.predict_proba(rows)
    assert chances.shape == (6000, 2)
    assert np.allclose(chances.sum(axis=1), 1)
    truth = np.array(rows["rich"].to_pylist())
    assert (model.predict(rows) == truth).mean() > 0.8
    assert sf.verify(tmp_path / "model", ledger=curator.ledger_path).unchecked == ()
    left = curator.budget().left
    again = curator.learn(recipe, epsilon=3, delta=1e-6)
    assert again.to_json() == model.to_json()
    assert curator.budget().left == left


def test_a_number_is_learnt_within_its_bounds(tmp_path, seeded_noise):
    rows = people()
    curator = open_project(tmp_path, rows)
    model = curator.learn(Additive(table="t", target="wage", inputs=["age", "job"]), epsilon=3, delta=1e-6)
    found, truth = model.predict(rows), rows["wage"].to_numpy()
    assert 1 - ((truth - found) ** 2).mean() / truth.var() > 0.7
    assert found.min() >= 0
    assert found.max() <= 1000


def test_counts_have_a_log_link(tmp_path):
    rows = people()
    columns = {**COLUMNS, "visits": {"range": [0, 20], "outside": "clamp"}}
    curator = open_project(tmp_path, rows, columns)
    recipe = Additive(table="t", target="visits", inputs=["age"], family="counts")
    model = curator.learn(recipe, epsilon=10, delta=1e-6)
    found = model.predict({"age": [20, 50, 80]})
    assert found[0] < found[1] < found[2]
    assert 0.5 < found[1] < 1.6


def test_several_classes_have_one_score_each(tmp_path):
    rows = people()
    curator = open_project(tmp_path, rows)
    model = curator.learn(Additive(table="t", target="job", inputs=["wage", "age"]), epsilon=10, delta=1e-6)
    assert model.classes_.tolist() == ["a", "b", "c"]
    truth = np.array(rows["job"].to_pylist())
    assert (model.predict(rows) == truth).mean() > 0.5


@pytest.mark.parametrize("target", ["rich", "wage"])
def test_a_constant_or_empty_target_gives_a_valid_model(tmp_path, target):
    rows = people(size=400)
    constant = {"rich": pa.array(["no"] * 400), "wage": pa.array([3.0] * 400)}[target]
    rows = rows.set_column(rows.column_names.index(target), target, constant)
    curator = open_project(tmp_path, rows)
    model = curator.learn(Additive(table="t", target=target), epsilon=1, delta=1e-6, out=tmp_path / "model")
    assert len(model.predict(rows)) == 400
    sf.verify(tmp_path / "model")


def test_little_epsilon_gives_a_constant_and_says_so(tmp_path):
    rows = people(size=300)
    curator = open_project(tmp_path, rows)
    release = curator.release(
        Additive(table="t", target="wage"), epsilon="0.001", delta="1e-6", out=tmp_path / "m"
    )
    facts = release.certificate["postprocessing"]["model"]
    if facts["terms"] == facts["terms_without_effect"]:
        assert "nothing was learnt" in facts["note"]
    model = sf.learn.open_model(tmp_path / "m")
    assert np.ptp(model.predict(rows)) < 100


def test_several_records_of_a_person_with_different_targets(tmp_path, seeded_noise):
    rows = people(size=3000)
    rows = rows.append_column("who", pa.array([f"p{i % 500}" for i in range(3000)]))
    curator = open_project(tmp_path, rows, unit="who", max_records=4)
    recipe = Additive(table="t", target="rich", inputs=["age", "job"])
    model = curator.learn(recipe, epsilon=10, delta=1e-6, out=tmp_path / "m")
    truth = np.array(rows["rich"].to_pylist())
    assert (model.predict(rows) == truth).mean() > 0.75
    certificate = json.loads((tmp_path / "m" / "certificate.json").read_text())
    sums = [each for each in certificate["measurements"] if "residuals" in each]
    assert {float(each["sensitivity"]) for each in sums if each["columns"] == ["age"]} == {4 * 4096 * 1024.0}


def crossed(size=8000, seed=3):
    """Two inputs that say nothing each, and all together."""
    generator = np.random.default_rng(seed)
    age, job = generator.integers(18, 90, size), generator.integers(0, 3, size)
    high = (age > 50) == (job == 1)
    wage = np.clip(np.where(high, 700, 300) + generator.normal(0, 80, size), 0, 1000)
    rich = generator.random(size) < np.where(high, 0.9, 0.1)
    return pa.table(
        {
            "age": age,
            "job": np.array(["a", "b", "c"])[job],
            "wage": wage,
            "rich": np.where(rich, "yes", "no"),
        }
    )


@pytest.mark.parametrize("target", ["rich", "wage"])
def test_a_pair_is_chosen_learnt_and_verified(tmp_path, target):
    rows = crossed()
    curator = open_project(tmp_path, rows)
    recipe = Additive(table="t", target=target, inputs=["age", "job"], pairs=1)
    model = curator.learn(recipe, epsilon=3, delta=1e-6, out=tmp_path / "m")
    (pair,) = (each for each in model.shapes() if len(each["columns"]) == 2)
    assert set(pair["columns"]) == {"age", "job"}
    assert len(pair["labels"]) == len(pair["effects"]) == 72 * 3
    truth = np.array(rows[target].to_pylist())

    def judge(found):
        if target == "rich":
            return (found == truth).mean()
        return 1 - ((truth - found) ** 2).mean() / truth.var()

    sf.verify(tmp_path / "m", ledger=curator.ledger_path)
    alone = curator.learn(replace(recipe, pairs=0), epsilon=3, delta=1e-6)
    assert judge(model.predict(rows)) > judge(alone.predict(rows)) + 0.1


def test_pairs_that_say_nothing_are_left_out(tmp_path):
    curator = open_project(tmp_path, people())
    recipe = Additive(table="t", target="wage", inputs=["age", "job"], pairs=3)
    release = curator.release(recipe, epsilon=1, delta="1e-6", out=tmp_path / "m")
    names = [each["name"] for each in release.certificate["measurements"]]
    assert any(name.startswith("choice") for name in names)
    shapes = sf.learn.open_model(tmp_path / "m").shapes()
    largest = [max(map(abs, each["effects"])) for each in shapes if len(each["columns"]) == 2]
    assert all(each < 100 for each in largest)


def test_pairs_are_asked_for_where_there_are_people_enough():
    def asked(size):
        planned = plan(Additive(table="t", target="wage"), epsilon=Fraction(1))
        answers = Answers(planned.table, size=size)
        follow_recipe(planned, answer=answers, progress=lambda _: None)
        return any(ask.name.startswith("choice") for ask in answers.asked)

    assert asked(1e5)
    assert not asked(500)


@pytest.mark.parametrize("epsilon", ["0.001", "1"])
@pytest.mark.parametrize(
    ("target", "family"), [("rich", None), ("job", None), ("wage", None), ("age", "counts")]
)
def test_a_run_is_never_left_halfway(epsilon, target, family):
    """Noise fits its digits and costs their sum, or the plan is refused before anything is charged."""
    for records in (1, 1000):
        table = describe(unit="who", max_records=records, bounding="weight")
        for inputs in (None, ["job"] if target != "job" else ["rich"]):
            recipe = Additive(table="t", target=target, family=family, inputs=inputs, pairs=2)
            try:
                planned = plan(recipe, table, epsilon=Fraction(epsilon))
            except sf.RecipeError:
                continue
            follow_recipe(planned, answer=Answers(planned.table), progress=lambda _: None)
