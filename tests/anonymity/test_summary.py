"""What a release kept and lost: figures that are checked against counts by hand."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from helpers.cases import read_cases
from sfumato.anonymity import Groups, Options, release_table
from sfumato.anonymity.summary import (
    INTERNAL,
    check_target,
    describe_summary,
    list_models,
    measure_accuracy,
    read_register,
    summarise,
)
from sfumato.core.errors import AnonymityError, SourceError

PEOPLE = {
    "name": ["a", "b", "c", "d", "e", "f"],
    "age": [61, 72, 66, 40, 35, 44],
    "sex": ["f", "m", "f", "f", "m", "f"],
    "ill": ["flu", "gout", "gout", "flu", "none", "flu"],
    "score": [1, 2, 3, 4, 5, 6],
    "weight": [10.0, 1.0, 1.0, 5.0, 1.0, 1.0],
}
REGISTER = {"name": list("abcdefgh"), "age": [61, 72, 66, 40, 35, 44, 65, 36], "sex": list("fmffmfmm")}


def release(**required):
    # Cuts make the classes 61-72 and 35-44, both with all sexes.
    usual = {"quasi_identifiers": ["age", "sex"], "k": 3, "sensitive": "ill", "method": "cuts"}
    plan = Options(**{**usual, **required})
    return release_table(PEOPLE, plan)


def test_risk_before_is_of_the_original_table_and_after_of_the_released():
    found = summarise(release())
    assert found.before.prosecutor.largest == 1
    assert found.before.unique == 1
    assert found.after.prosecutor.largest == pytest.approx(1 / 3)
    assert found.after.unique == 0
    assert found.release.measured.k == 3
    assert found.release.made.table.num_rows == found.release.original.num_rows == 6
    assert found.before.population == found.after.population == "table"
    assert found.linked_before is found.linked_after is None


def test_a_register_is_the_population_and_is_linked():
    found = summarise(release(), register=REGISTER)
    assert found.before.population == "register"
    assert found.linked_before.linked == 6
    assert found.linked_before.revealed.certain == 6
    assert found.linked_after.linked == 0
    assert found.linked_after.people == 8
    # Four people of the register fit either class.
    assert found.after.journalist.largest == pytest.approx(1 / 4)


def test_linkage_tells_no_value_and_no_person():
    record = summarise(release(), register=REGISTER).to_record()
    assert set(record["linkage"]["after"]) == {
        "records", "people", "matches", "limit", "linked", "sensitive", "certain",
    }  # fmt: skip
    text = json.dumps(record, allow_nan=False)
    assert "flu" not in text
    assert "gout" not in text
    assert record["internal"] == INTERNAL


def test_survey_weights_follow_their_records():
    weights = pa.chunked_array([PEOPLE["weight"]])
    found = summarise(release(), survey_weights=weights)
    assert found.before.population == "weights"
    # Classes of 61-72 (10 + 1 + 1) and of 35-44 (5 + 1 + 1), each of three records.
    assert found.after.journalist.average == pytest.approx((3 / 12 + 3 / 7) / 6)
    assert found.before.journalist.average == pytest.approx((1 / 10 + 1 / 5 + 4) / 6)


def test_survey_weights_may_be_a_kept_column():
    kept = release(keep="weight")
    named = summarise(kept, survey_weights="weight")
    given = summarise(kept, survey_weights=pa.chunked_array([PEOPLE["weight"]]))
    assert named.after == given.after
    with pytest.raises(AnonymityError, match="weight"):
        summarise(release(), survey_weights="weight")
    with pytest.raises(AnonymityError, match="each record"):
        summarise(release(), survey_weights=pa.chunked_array([[1.0, 2.0]]))
    with pytest.raises(AnonymityError, match="not both"):
        summarise(kept, survey_weights="weight", register=REGISTER)


def test_a_quasi_identifier_may_be_called_as_the_weights_are():
    people = {"survey weights": [1, 2, 3, 4], "ill": ["a", "b", "a", "b"]}
    plan = Options(quasi_identifiers="survey weights", k=2)
    found = summarise(release_table(people, plan), survey_weights=pa.chunked_array([[1.0, 1, 1, 1]]))
    assert found.after.records == 4


def test_the_target():
    assert summarise(release()).accuracy.target == "ill"
    assert summarise(release(keep="score"), target="score").accuracy.target == "score"
    assert summarise(release(sensitive=None)).accuracy is None
    for wrong in ("age", "name", "gone"):
        with pytest.raises(AnonymityError, match="target"):
            summarise(release(), target=wrong)
    with pytest.raises(AnonymityError):
        check_target(release().options, "weight")


def test_a_target_that_nobody_asked_for_is_noted_if_it_cannot_be_predicted():
    many = {"age": [*range(300)], "secret": [f"s{each}" for each in range(300)]}
    made = release_table(many, Options(quasi_identifiers="age", k=5, sensitive="secret"))
    found = summarise(made)
    assert found.accuracy is None
    assert "different values" in found.notes[0]
    with pytest.raises(AnonymityError, match="different values"):
        summarise(made, target="secret")


def test_labels_that_fit_nobody_are_noted():
    named = release(hierarchies={"sex": Groups({"anybody": ["f", "m"]})})
    assert "*" in named.made.table["sex"].to_pylist() or "anybody" in named.made.table["sex"].to_pylist()
    means = release(method="microaggregate")
    assert any("too low" in each for each in summarise(means, register=REGISTER).notes)
    assert not summarise(release(), register=REGISTER).notes


def test_a_register_needs_the_columns():
    plan = release().options
    assert read_register(REGISTER, plan).column_names == ["age", "sex"]
    with pytest.raises(SourceError, match="'sex'"):
        read_register({"age": [1]}, plan)


def test_models_and_words():
    found = summarise(release(l=2, t=0.9))
    assert [name for name, _, _ in list_models(found)] == ["k =", "l =", "t ="]
    text = describe_summary(found)
    assert "l = 2 (asked 2)" in text
    assert "(asked at most 0.9)" in text
    assert "not differential privacy" in text.splitlines()[-1]
    assert "flu" not in text
    assert "l = " not in describe_summary(summarise(release(sensitive=None)))


def test_the_record_says_what_was_asked():
    asked = summarise(release(l=2, recursive=(3, 2), weights={"age": 2})).to_record()["asked"]
    assert asked["l"] == 2
    assert asked["recursive"] == {"c": 3, "l": 2}
    assert asked["weights"] == {"age": 2}
    assert asked["k_map"] is False
    mapped = Options(quasi_identifiers=["age", "sex"], k=2, k_map=True)
    found = summarise(release_table(PEOPLE, mapped, register=REGISTER), register=REGISTER)
    assert found.to_record()["asked"]["k_map"] is True
    assert list_models(found)[0][0] == "k-map ="


def measure(before, after=None, **options):
    return measure_accuracy(
        before, before if after is None else after, **{"features": ["a"], "target": "s", **options}
    )


def test_what_a_column_tells_is_learned_and_what_is_gone_is_not():
    before = {"a": ["x", "y"] * 20, "b": ["p", "p", "q", "q"] * 10, "s": ["u", "v"] * 20}
    found = measure(before, {**before, "a": ["*"] * 40}, features=["a", "b"])
    assert (found.before, found.after) == (1.0, 0.5)
    assert (found.baseline_before, found.baseline_after) == (0.5, 0.5)
    assert found.kept == 0
    assert found.to_record()["model"] == "k-anonymity, not differential privacy"


def test_the_baseline_is_the_most_frequent_target():
    rows = {"a": ["x"] * 10, "s": ["u"] * 7 + ["v", None, None]}
    found = measure(rows)
    assert (found.before, found.baseline_before, found.kept) == (0.7, 0.7, None)


def test_fewer_records_after_are_tested_by_themselves():
    before = {"a": ["x", "y"] * 20, "s": ["u", "v"] * 20}
    after = {"a": ["x", "y"] * 5 + ["x"] * 5, "s": ["u", "v"] * 5 + ["u"] * 5}
    found = measure(before, after)
    assert found.after == 1
    assert found.baseline_after == pytest.approx(2 / 3)
    empty = pa.table({"a": pa.array([], pa.string()), "s": pa.array([], pa.string())})
    assert measure(before, empty).after == 0


def test_each_record_is_predicted_by_the_others_only():
    # Every value occurs once: a memory of the record itself would be right, the others know nothing.
    rows = {"a": list(range(100)), "s": ["u", "v"] * 50}
    assert measure(rows).before <= 0.55


@pytest.mark.parametrize(("options", "words"), read_cases(__file__, "test_impossible_options_are_refused"))
def test_impossible_options_are_refused(options, words):
    rows = {"a": list(range(300)), "s": ["u"] * 300}
    with pytest.raises((AnonymityError, SourceError), match=words):
        measure(rows, **options)


@pytest.mark.shared
def test_income_is_predicted_from_the_census(shared):
    table = pq.read_table(shared / "data" / "adult" / "adult.parquet")
    features = ["age", "workclass", "education", "marital-status", "occupation", "race", "sex"]
    decades = pc.multiply(pc.divide(table["age"], 10), 10)
    coarse = table.set_column(table.column_names.index("age"), "age", decades)
    found = measure_accuracy(table, coarse, features=features, target="income")
    assert 0.79 < found.before < 0.84
    assert abs(found.after - found.before) < 0.01
    assert found.baseline_before == pytest.approx(0.7607, abs=1e-4)
    assert found.kept > 0.8
