"""The contract that every registered recipe keeps; the tests of one recipe hold only what is its own.

The cases are the first of each recipe in tests/pins/exact.toml, or the example on the page of one that is not
there.
"""

import hashlib
import json
import re
import shutil
import tomllib
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
import sfumato.core.noise
from helpers.asking import answer_anything
from helpers.exact import RECIPES as EXAMPLES
from helpers.exact import write_project
from sfumato.accounting import Budget, Spent, add_costs, admits
from sfumato.core.facts.project import read_project
from sfumato.core.questions.measurement import Request
from sfumato.curator import Curator
from sfumato.recipes.base import follow_recipe
from sfumato.recipes.files import RECIPES, find_recipe, parse_recipe, parse_record
from sfumato.release.certificate import pack_json

PAGES = Path(__file__).resolve().parents[2] / "docs" / "proofs"
NULLABLE = ("age", "month", "ok")


def read_example(kind):
    """The example of a recipe as a document."""
    for each in EXAMPLES:
        if each["recipe"] == kind:
            return {"table": "t", "epsilon": 2, **each}
    page = (PAGES / f"{kind}.md").read_text()
    (found,) = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return {"table": "t", "epsilon": 2, **tomllib.loads(found)}


def plan_example(kind, folder, **changes):
    """The plan of an example, with changed keys, for a table of the project in `folder`."""
    file = parse_recipe({**read_example(kind), **changes}, folder=folder)
    table = read_project(folder / "sfumato.toml").table(file.recipe.table)
    return file.recipe.plan(table, epsilons=file.epsilons, delta=file.delta)


@dataclass
class Made:
    """A release of an example, and what was said before it."""

    kind: str
    folder: Path
    curator: Curator
    check: Any
    release: Any

    @property
    def out(self):
        return self.folder / "out"

    @property
    def ledger(self):
        return self.folder / "ledger.db"

    def again(self, **changes):
        file = parse_recipe({**read_example(self.kind), **changes}, folder=self.folder)
        return self.curator.release(file.recipe, epsilon=file.epsilons, delta=file.delta)


@pytest.fixture(scope="module", params=sorted(RECIPES))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def made(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp(kind)
    curator = sf.open(write_project(folder))
    file = parse_recipe(read_example(kind), folder=folder)
    given = {"epsilon": file.epsilons, "delta": file.delta}
    check = curator.check(file.recipe, **given)
    assert not (folder / "ledger.db").exists(), "a check spends nothing"
    return Made(kind, folder, curator, check, curator.release(file.recipe, **given, out=folder / "out"))


@pytest.fixture(scope="module")
def laid(tmp_path_factory):
    """The folder of a project that nobody releases from."""
    folder = tmp_path_factory.mktemp("laid")
    write_project(folder)
    return folder


def test_the_price_is_said_before_and_is_what_is_charged(made):
    plan = made.check.plan
    assert made.check.admitted
    entry, *parts = [each for each in made.curator.budget().entries if each.kind == "charge"]
    assert entry.costs == plan.costs
    assert made.curator.budget().sums == add_costs(Spent(), plan.costs)
    assert not any(each.costs for each in parts), "a series is paid for once"
    if not plan.series:
        assert (entry.plan_digest, parts) == (plan.asked_digest, [])


def test_the_price_is_what_epsilon_and_delta_buy_and_no_less(made):
    plan = made.check.plan
    epsilon = sum(plan.epsilons)
    assert admits(Budget(epsilon, plan.delta), Spent(), plan.costs)
    assert not admits(Budget(epsilon * Fraction(95, 100), plan.delta), Spent(), plan.costs)


def test_the_expected_error_is_said_before(made):
    said = made.check.to_record()
    assert made.check.plan.requests or said["allowance"]
    assert all(each["expected_error_95"] > 0 for each in said["measurements"])


@dataclass(frozen=True)
class Cheat:
    """A recipe that asks for something else than it planned, and believes it got what it planned."""

    recipe: Any
    change: Any

    @property
    def kind(self):
        return self.recipe.kind

    def run(self, plan, *, progress):
        run, answers = self.recipe.run(replace(plan, recipe=self.recipe), progress=progress), None
        with suppress(StopIteration):
            while True:
                batch = run.send(answers)
                yield self.change(batch)
                answers = answer_anything(plan, batch)
        yield self.change(batch, last=True)
        raise AssertionError("all was answered")


def halve_noise(batch, last=False):
    return () if last else tuple(map(ask_dearly, batch))


def ask_dearly(ask):
    if isinstance(ask, Request):
        return replace(ask, scale=ask.scale / 2)
    return replace(ask, epsilon=2 * ask.epsilon)


def ask_again(batch, last=False):
    return tuple(replace(ask, name=f"{ask.name}, again") for ask in batch) if last else batch


@pytest.mark.parametrize("change", [halve_noise, ask_again])
def test_what_was_not_paid_for_is_refused(made, change):
    plan = replace(made.check.plan, recipe=Cheat(made.check.plan.recipe, change))
    with pytest.raises(sf.RecipeError, match="more than its plan charges"):
        follow_recipe(plan, answer=partial(answer_anything, plan), progress=lambda _: None)


def test_a_release_verifies_against_its_ledger(made):
    found = sf.verify(made.out, ledger=made.ledger)
    assert found.unchecked == ()
    assert found.verdict.startswith("verified")
    assert found.total == made.release.certificate["total"]


def test_what_is_released_agrees_with_itself(made):
    table = made.release.table
    assert table.num_rows > 0
    assert len(set(table.column_names)) == table.num_columns
    for low in [name for name in table.column_names if "low" in name]:
        high, middle = low.replace("low", "high"), re.sub("_?low(_95)?", "", low)
        ends = [table[name].to_pylist() for name in (low, high)]
        assert all(one <= other for one, other in zip(*ends, strict=True) if one is not None)
        if middle in table.column_names:
            rows = zip(ends[0], table[middle].to_pylist(), ends[1], strict=True)
            assert all(one <= value <= other for one, value, other in rows if one is not None)
    if "count" in table.column_names:
        assert pa.types.is_integer(table["count"].type)
    described = made.check.plan.table.columns
    for name in set(table.column_names) & set(described):
        labels = described[name].labels
        if not pa.types.is_floating(table[name].type):
            assert set(table[name].to_pylist()) <= {*labels, None}


def test_the_same_answers_make_the_same_bytes_and_are_free(made):
    spent = made.curator.budget().spent
    again = made.again()
    assert again.repeated
    assert dict(again.files) == dict(made.release.files)
    assert {each.name: each.read_bytes() for each in made.out.iterdir()} == dict(made.release.files)
    if "seed" in read_fields(made.kind):
        assert made.again(seed=12345).repeated, "another public seed asks nothing"
    assert made.curator.budget().spent == spent


def read_fields(kind):
    return {each.name for each in fields(find_recipe(kind))}


def test_a_recipe_reads_back_from_its_record_and_its_file(made):
    record = made.release.certificate["plan"]["recipe"]
    again = parse_record(json.loads(json.dumps(record)))
    assert again.to_record() == record
    with pytest.raises(sf.SfumatoError, match="did you mean"):
        parse_recipe({**read_example(made.kind), "tabel": "t"})


def test_an_edited_release_is_refused(made, tmp_path):
    """Whoever edits a file corrects its digest, too."""
    certificate = json.loads((made.out / "certificate.json").read_text())
    for name in sorted(made.release.files):
        out = tmp_path / name
        shutil.copytree(made.out, out)
        edited = json.loads(json.dumps(certificate))
        if name == "certificate.json":
            edited["plan"]["recipe"]["table"] = "rows"
        else:
            content = (out / name).read_bytes() + b"\n"
            (out / name).write_bytes(content)
            edited["files"][name] = hashlib.sha256(content).hexdigest()
        (out / "certificate.json").write_bytes(pack_json(edited))
        with pytest.raises(sf.VerificationFailed):
            sf.verify(out)


def test_it_tells_what_it_did_and_has_a_proof(made):
    told = made.release.files["writeup.md"].decode()
    paragraphs = made.check.plan.recipe.describe(made.check.plan)
    assert {"idea", "preprocessing", "postprocessing"} <= set(paragraphs)
    assert paragraphs["preprocessing"] in told
    for heading in ("Main idea", "Pre-processing", "Privatisation and proof", "Post-processing"):
        assert f"## {heading}" in told
    assert (PAGES / f"{made.kind}.md").is_file()

    assert find_recipe(made.kind).__doc__


class Interrupted(BaseException):
    """What stops a release between two draws."""


def test_an_interrupted_release_is_finished_under_its_charge(made, tmp_path, monkeypatch):
    curator = sf.open(write_project(tmp_path))
    file = parse_recipe(read_example(made.kind), folder=tmp_path)
    given = {"epsilon": file.epsilons, "delta": file.delta, "out": tmp_path / "out"}
    drawn, kept = [], min(2, len(made.release.answers) - 1)

    def stop(draw):
        def drawer(*values, **law):
            if len(drawn) == kept:
                raise Interrupted
            drawn.append(law)
            return draw(*values, **law)

        return drawer

    with monkeypatch.context() as patch:
        for name in ("add_noise", "add_sparse_noise", "exponential_choice"):
            patch.setattr(sfumato.core.noise, name, stop(getattr(sfumato.core.noise, name)))
        with pytest.raises(Interrupted):
            curator.release(file.recipe, **given)
    spent = curator.budget().sums
    assert spent != Spent()
    assert curator.release(file.recipe, **given, force=True).resumed
    assert curator.budget().sums == spent
    assert sf.verify(tmp_path / "out", ledger=tmp_path / "ledger.db").unchecked == ()


# What cannot be answered is refused in words, and costs nothing.


def refused_or_planned(kind, folder, **changes):
    """The plan, or None where it is refused; any error but the project's own fails the test."""
    with suppress(sf.SfumatoError):
        return plan_example(kind, folder, **changes)


@pytest.mark.parametrize("value", [-1, 0, 2.5, True, "", "x", [], {}, ["region", "region"], [[]], None])
def test_whatever_an_option_is_the_answer_is_a_plan_or_a_sentence(kind, laid, value):
    for name in read_fields(kind) - {"table"}:
        refused_or_planned(kind, laid, **{name: value})


def rename(value, old, new):
    """A document in which one column has another name."""
    if isinstance(value, dict):
        return {rename(key, old, new): rename(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [rename(each, old, new) for each in value]
    return new if value == old else value


@pytest.mark.parametrize("other", ["nothing", "note"])
def test_columns_that_nothing_is_known_of_are_refused(kind, laid, other):
    """One is not there at all, one stands in the records alone."""
    example = read_example(kind)
    table = read_project(laid / "sfumato.toml").table(example["table"])
    named = {name for name in table.columns if rename(example, name, other) != example}
    for name in named:
        with pytest.raises(sf.SfumatoError, match=rf"\b({other}|{name})\b"):
            plan_example(kind, laid, **rename(example, name, other))


def test_missing_values_are_answered_or_refused_in_words(kind, tmp_path):
    file = write_project(tmp_path)
    text = file.read_text()
    for name in NULLABLE:
        text = re.sub(rf"(columns\.{name}\]\n)", r"\1nullable = true\n", text)
    file.write_text(text.replace('outside = "clamp"\n', ""))
    rows = pq.read_table(tmp_path / "t.parquet")
    for name in NULLABLE:
        values = [None if place % 5 == 0 else each for place, each in enumerate(rows[name].to_pylist())]
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values, rows[name].type))
    pq.write_table(rows, tmp_path / "t.parquet")
    check_release(kind, tmp_path)


def check_release(kind, folder):
    """Releases an example and verifies it, unless it is refused before the charge."""
    curator = sf.open(folder / "sfumato.toml")
    file = parse_recipe(read_example(kind), folder=folder)
    given = {"epsilon": file.epsilons, "delta": file.delta}
    try:
        curator.check(file.recipe, **given)
    except sf.SfumatoError as error:
        reason = str(error)
    else:
        curator.release(file.recipe, **given, out=folder / "out")
        assert sf.verify(folder / "out", ledger=folder / "ledger.db").unchecked == ()
        return
    assert re.search("missing|nullable", reason)
    assert not (folder / "ledger.db").exists()


def test_a_table_without_records_is_released(kind, tmp_path):
    write_project(tmp_path)
    for name in ("t", "homes", "lines"):
        rows = pq.read_table(tmp_path / f"{name}.parquet")
        pq.write_table(rows.slice(0, 0), tmp_path / f"{name}.parquet")
    check_release(kind, tmp_path)


def test_privacy_parameters_are_bought_exactly_or_refused_in_words(kind, laid):
    example = read_example(kind)
    for epsilon in ("1e-12", "0.01", 1, 30, [1, 3]):
        for delta in (0, "1e-12", "1e-6"):
            plan = refused_or_planned(kind, laid, **{**example, "epsilon": epsilon, "delta": delta})
            if plan is not None and epsilon != "1e-12":
                assert admits(Budget(sum(plan.epsilons), delta), Spent(), plan.costs), (epsilon, delta)


@pytest.mark.parametrize("table", ["weighted", "monthly", "rows", "replaced"])
def test_other_units_are_priced_or_refused_in_words(kind, laid, table, tmp_path):
    folder = laid
    if table == "replaced":
        write_project(folder := tmp_path, neighbours="replace")
    changes = {"table": table} if table != "replaced" else {}
    plan = refused_or_planned(kind, folder, **changes)
    if plan is not None:
        assert plan.costs
        assert {cost.neighbours for cost in plan.costs} == {plan.table.unit.neighbours}
        assert admits(Budget(sum(plan.epsilons), plan.delta), Spent(), plan.costs)
