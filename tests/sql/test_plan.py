"""Plans: sensitivities, noise and costs against values worked out by hand."""

import math
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from sqlglot import exp

from sfumato.accounting import discrete_gaussian_sigma, selection_threshold
from sfumato.core.algebra.measures import Measure, bound_measure
from sfumato.core.errors import UnsupportedQuery
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.table import PrivacyUnit
from sfumato.curator.explain import explain_query
from sfumato.sql.aggregates import Key
from sfumato.sql.plan import PrivateChoice, half_width, least_epsilon, plan_selection
from sfumato.sql.planner import plan_query, prepare_query
from sfumato.sql.question import digest_question, read_question
from sfumato.sql.relation import UNIT, Source
from sfumato.sql.rows import plan_rows
from sfumato.sql.statement import read_statement

PROJECT = """
[budget]
epsilon = 10
delta = 1e-6
[tables.t]
source = "t.parquet"
unit = "person"
max_records = 20
{extra}
[tables.t.columns.region]
values = ["a", "b", "c"]
[tables.t.columns.month]
range = [1, 12]
[tables.t.columns.amount]
bounds = [0, 100]
[tables.t.columns.balance]
bounds = [-10, 30]
[tables.t.columns.visits]
bounds = [0, 7]
[tables.rows]
source = "t.parquet"
unit = "row"
"""

STORED = {
    "person": "integer",
    "region": "text",
    "month": "integer",
    "amount": "number",
    "balance": "number",
    "visits": "integer",
    "note": "text",
    "at": "date",
}
ZONES = {"zone": "text", "side": "text"}


def catalog(extra=""):
    project = parse_project(tomllib.loads(PROJECT.format(extra=extra)), folder=Path())
    found = {name: Source(name=name, stored=STORED, table=table) for name, table in project.tables.items()}
    labels = {"zone": ("a", "b"), "side": ("north", "south", "west")}
    return found | {"zones": Source(name="zones", stored=ZONES, labels=labels)}


def plan(text, *, extra="", epsilon=None):
    statement = read_statement(text)
    return plan_query(
        statement,
        catalog(extra),
        epsilon=epsilon or statement.epsilon,
        selection_delta=Fraction(1, 10**7),
    )


def spent(found):
    return sum(cost.epsilon for cost in found.costs)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "1/3", "7"])
def test_a_count_has_scale_max_records_over_epsilon(epsilon):
    found = plan(f"DP-SELECT {epsilon} COUNT(*) FROM t")
    (noise,) = found.noises
    assert (noise.kind, noise.scale) == ("laplace", 20 / Fraction(epsilon))
    assert spent(found) == Fraction(epsilon)


def test_the_size_of_the_answer_does_not_change_the_noise():
    for by in ("region", "month", "region, month"):
        (noise,) = plan(f"DP-SELECT 1 {by}, COUNT(*) FROM t GROUP BY {by}").noises
        assert noise.scale == 20


def test_every_row_an_individual_counts_once():
    (noise,) = plan("DP-SELECT 1 COUNT(*) FROM rows").noises
    assert (noise.scale, noise.costs[0].unit) == (1, "row")


def test_a_sum_of_whole_numbers_has_the_largest_magnitude_as_its_sensitivity():
    (noise,) = plan("DP-SELECT 2 SUM(visits) FROM t").noises
    assert (noise.measure.grid, noise.scale) == (1, Fraction(20 * 7, 2))


@pytest.mark.parametrize(("column", "most"), [("amount", 100), ("balance", 30), ("-amount", 100)])
def test_a_sum_of_numbers_lies_on_a_fine_grid(column, most):
    (noise,) = plan(f"DP-SELECT 1 SUM({column}) AS s FROM t").noises
    assert noise.measure.grid >= 2**12
    assert noise.scale / noise.measure.grid == 20 * most


def test_bounds_follow_the_expression():
    def bounds(expression):
        measure = plan(f"DP-SELECT 1 SUM({expression}) AS s FROM t").noises[0].measure
        return measure.low, measure.high

    assert bounds("amount * 2 - 1") == (-1, 199)
    assert bounds("balance * balance") == (-300, 900)
    assert bounds("abs(balance)") == (0, 30)
    assert bounds("amount / 4") == (0, 25)
    assert bounds("CASE WHEN note = 'x' THEN amount ELSE -5 END") == (-5, 100)
    assert bounds("coalesce(visits, 9)") == (0, 9)
    assert bounds("greatest(balance, 5)") == (-10, 30)
    assert bounds("month") == (1, 12)


def test_an_average_is_a_centred_sum_over_a_count():
    found = plan("DP-SELECT 1 AVG(amount) FROM t")
    top, bottom = found.noises
    assert (top.measure.centre, top.scale / top.measure.grid) == (50, 20 * 50 * 2)
    assert (bottom.measure.statistic, bottom.scale) == ("present", 40)
    assert spent(found) == 1


def test_measures_are_shared_and_epsilon_is_split_evenly():
    found = plan("DP-SELECT 3 COUNT(amount), AVG(amount), STDDEV(amount), VARIANCE(amount) FROM t")
    assert [noise.measure.statistic for noise in found.noises] == ["present", "sum", "square"]
    assert [cost.epsilon for cost in found.costs] == [1, 1, 1]
    assert found.noises[2].measure.largest == found.noises[2].measure.grid


def test_individuals_count_once_per_group():
    assert plan("DP-SELECT 1 COUNT(DISTINCT person) FROM t").noises[0].scale == 1
    text = "DP-SELECT 1 {delta} region, COUNT(DISTINCT person) FROM t GROUP BY region"
    (noise,) = plan(text.format(delta=""), extra="max_groups = 4").noises
    assert noise.scale == 4
    (noise,) = plan(text.format(delta="DELTA 1e-3"), extra="max_groups = 9").noises
    assert noise.kind == "gaussian"
    assert float(noise.costs[0].sensitivity) == pytest.approx(3)
    assert noise.costs[0].sensitivity >= 3


def test_max_groups_comes_from_the_options_the_table_or_max_records():
    text = "region, COUNT(*) FROM t GROUP BY region"
    option = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups = {}) "
    assert plan(f"DP-SELECT 1 {text}").max_groups == 20
    assert plan(f"DP-SELECT 1 {text}", extra="max_groups = 5").max_groups == 5
    assert plan(option.format(2) + text, extra="max_groups = 5").max_groups == 2
    assert plan(option.format(99) + text).max_groups == 20
    assert plan("DP-SELECT 1 COUNT(*) FROM t").max_groups == 1


@pytest.mark.parametrize(
    "aggregate", ["COUNT(*)", "SUM(balance)", "COUNT(DISTINCT person)", "COUNT(DISTINCT note)", "COUNT(note)"]
)
def test_replacing_an_individual_doubles_laplace_noise(aggregate):
    text = f"DP-SELECT 1 region, {aggregate} AS n FROM t GROUP BY region"
    assert plan(text, extra='neighbours = "replace"').noises[0].scale == 2 * plan(text).noises[0].scale


@pytest.mark.parametrize(("aggregate", "factor"), [("COUNT(*)", math.sqrt(2)), ("SUM(balance)", 2)])
def test_replacing_moves_gaussian_counts_by_the_square_root_of_two_and_signed_sums_by_two(
    aggregate, factor, monkeypatch
):
    # Only a delta that nobody would ask for, and nobody is given, makes Gaussian noise the smaller one here.
    monkeypatch.setattr("sfumato.core.exact._LARGEST_DELTA", Fraction(1))
    text = f"DP-SELECT 1 DELTA 0.3 {aggregate} AS n FROM t"
    once = plan(text).noises[0].costs[0]
    twice = plan(text, extra='neighbours = "replace"').noises[0].costs[0]
    assert once.kind == twice.kind == "gaussian"
    assert float(twice.sensitivity / once.sensitivity) == pytest.approx(factor)


def test_gaussian_noise_is_chosen_where_it_is_smaller():
    by = "DP-SELECT 1 DELTA 1e-9 region, COUNT(DISTINCT person) FROM t GROUP BY region"
    (noise,) = plan(by).noises
    assert noise.kind == "gaussian"
    exact = discrete_gaussian_sigma(
        epsilon=1, delta=Fraction(1, 10**9), sensitivity=noise.costs[0].sensitivity, count=1
    )
    assert exact <= float(noise.scale) <= float(exact) * 1.001
    assert float(noise.scale) < math.sqrt(2) * 20
    assert plan("DP-SELECT 1 DELTA 1e-9 COUNT(*) FROM t").noises[0].kind == "laplace"


def test_kinds_are_never_mixed_and_quantiles_stay_pure():
    text = "DP-SELECT 1 DELTA 1e-9 region, COUNT(DISTINCT person), MEDIAN(amount) FROM t GROUP BY region"
    assert {noise.law[0] for noise in plan(text).noises} == {"laplace", "permute-and-flip"}
    many = "DP-SELECT 1 DELTA 1e-9 region, COUNT(DISTINCT person), COUNT(*) FROM t GROUP BY region"
    assert len({noise.law[0] for noise in plan(many).noises}) == 1


def test_open_groups_are_selected_at_a_threshold():
    text = "DP-SELECT 1 DELTA 1e-7 note, COUNT(*) FROM t GROUP BY note"
    found = plan(text)
    chosen = found.selection
    # Half of epsilon each, one individual in 20 groups; a hundredth of the reserve of 1e-7.
    assert chosen.scale == 40
    assert chosen.cost.delta == Fraction(1, 10**9)
    assert chosen.threshold == selection_threshold(scale=40, sensitivity=20, delta="1e-9")
    q = math.exp(-1 / 40)
    assert 20 * q ** (chosen.threshold - 1) / (1 + q) <= 1e-9 < 20 * q ** (chosen.threshold - 2) / (1 + q)
    assert found.costs[0] is chosen.cost
    # Exchanged, both tables may fail: the cost is for twice as many groups, and the threshold for as many.
    exchanged = plan(text, extra='neighbours = "replace"').selection
    assert (exchanged.scale, exchanged.cost.sensitivity) == (80, 40)
    assert exchanged.threshold == selection_threshold(scale=80, sensitivity=20, delta="1e-9")
    assert plan("DP-SELECT 1 region, COUNT(*) FROM t GROUP BY region").selection is None


def test_selections_that_cost_another_delta_are_other_questions():
    """Whoever went on under the charge of the other would be refused, or charged for what was not asked."""
    text = "DP-SELECT 1 DELTA 1.000{}e-9 note, COUNT(*) FROM t GROUP BY note"
    one, other = (plan(text.format(last)) for last in (1, 2))
    assert one.selection.threshold == other.selection.threshold
    assert one.selection.cost != other.selection.cost
    assert digest_question(one, read_question(one)) != digest_question(other, read_question(other))


def test_a_quantile_spends_nearly_all_on_its_answer():
    found = plan("DP-SELECT 1 MEDIAN(amount) FROM t")
    (noise,) = found.noises
    assert [cost.epsilon for cost in noise.costs] == [Fraction(47, 50), Fraction(3, 50)]
    assert {cost.kind for cost in noise.costs} == {"permute-and-flip"}
    assert spent(found) == 1
    answer, window = noise.drawn.ranks
    # Per record a rank moves by max(1, 2 - 1), a number of records by 1: rates are epsilon / (2 sensitivity).
    assert [answer.rate, window.rate] == [Fraction(47, 2000), Fraction(3, 2000)]
    assert (answer.shift, answer.nearest, window.nearest) == (0, 0, 4000)
    (noise,) = plan("DP-SELECT 1 QUANTILE_CONT(amount, 0.95) FROM t").noises
    assert [cost.epsilon for cost in noise.costs] == [Fraction(92, 100), Fraction(6, 100), Fraction(2, 100)]
    # A rank moves by 19 of 20ths per record; the number of all records by the 20 of an individual.
    assert [each.rate for each in noise.drawn.ranks] == [Fraction(92, 100) / (2 * 19 * 20), Fraction(3, 2000)]
    assert noise.drawn.scale == 20 / Fraction(2, 100)
    statement = read_statement("DP-SELECT 1 MEDIAN(amount) FROM t")
    alone = prepare_query(statement, catalog(), selection_delta=Fraction(0), intervals=False)(Fraction(1))
    assert [cost.scale for cost in alone.costs] == [1]
    assert alone.digest != found.digest


@pytest.mark.parametrize(("asked", "steps"), [("MEDIAN(month)", 11), ("QUANTILE_CONT(visits * 2, 0.9)", 14)])
def test_a_quantile_has_a_step_for_each_whole_number(asked, steps):
    (noise,) = plan(f"DP-SELECT 1 {asked} FROM t").noises
    assert (noise.measure.steps, noise.measure.whole) == (steps, True)


@pytest.mark.parametrize(("aggregate", "sign"), [("MIN(amount)", 1), ("MAX(amount)", -1)])
def test_an_extreme_is_one_choice(aggregate, sign):
    found = plan(f"DP-SELECT 1 {aggregate} FROM t")
    (noise,) = found.noises
    assert [cost.scale for cost in noise.costs] == [1]
    (ranks,) = noise.drawn.ranks
    assert ranks.shift == sign * math.ceil(math.log(1027 * 20 / 3) / float(ranks.rate))


@pytest.mark.parametrize(
    ("outputs", "together"),
    [
        ("MIN(amount)", 1),
        ("MIN(amount) * 2 + 1, COUNT(*)", 1),
        ("MIN(amount), MIN(amount) - AVG(amount)", 2),
        ("MIN(amount) - AVG(amount) + COUNT(*)", 3),
    ],
)
def test_intervals_that_hold_together_are_wider(outputs, together):
    found = plan(f"DP-SELECT 1 {outputs} FROM t")
    (noise,) = [each for each in found.noises if isinstance(each, PrivateChoice)]
    (rank,) = noise.drawn.ranks
    assert rank.shift == math.ceil(math.log(1027 * 20 * together / 3) / float(rank.rate))


def test_within_is_the_least_epsilon():
    statement = read_statement("DP-SELECT WITHIN 100 COUNT(*) FROM t")

    def at(epsilon):
        return plan_query(statement, catalog(), epsilon=epsilon, selection_delta=Fraction(0))

    epsilon = least_epsilon(at, Fraction(100))
    assert half_width(at(epsilon).noises[0], 0.05) <= 100
    assert half_width(at(epsilon - Fraction(1, 10**6)).noises[0], 0.05) > 100
    # 95 % of Laplace noise of scale b lie within about b ln 20.
    assert float(epsilon) == pytest.approx(20 * math.log(20) / 100, rel=0.01)


def test_the_same_statement_has_the_same_digest_however_it_is_written():
    texts = [
        "DP-SELECT 1 region, COUNT(*) AS n FROM t WHERE amount > 5 GROUP BY region",
        "dp-select 1.0\n  region, count( * ) as n\nfrom T -- a remark\nwhere (amount > 5) group by region;",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) REGION, COUNT(*) AS N FROM t "
        "WHERE amount > 5 GROUP BY region",
    ]
    digests = [plan(text.replace("(amount > 5)", "amount > 5")).digest for text in texts]
    assert len(set(digests)) == 1


def test_different_questions_have_different_digests():
    texts = [
        "DP-SELECT 1 region, COUNT(*) FROM t GROUP BY region",
        "DP-SELECT 2 region, COUNT(*) FROM t GROUP BY region",
        "DP-SELECT 1 DELTA 1e-9 region, COUNT(*) FROM t GROUP BY region",
        "DP-SELECT 1 month, COUNT(*) FROM t GROUP BY month",
        "DP-SELECT 1 region, COUNT(note) FROM t GROUP BY region",
        "DP-SELECT 1 region, COUNT(*) FROM t WHERE note = 'a' GROUP BY region",
        "DP-SELECT 1 region, COUNT(*) FROM t WHERE note = 'A' GROUP BY region",
        "DP-SELECT 1 region, COUNT(*) FROM (SELECT region FROM t WHERE note = 'A') AS t GROUP BY region",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups = 2) region, COUNT(*) FROM t "
        "GROUP BY region",
    ]
    digests = [plan(text).digest for text in texts]
    digests += [plan(texts[0], extra='neighbours = "replace"').digest]
    digests += [plan(texts[0], extra="max_groups = 3").digest]
    assert len(set(digests)) == len(digests)


def test_row_selection_is_one_histogram_all_pairs_or_a_chain_of_them(monkeypatch):
    def parts(text):
        statement = read_statement(text)
        return plan_rows(statement, catalog(), epsilon=statement.epsilon).parts

    (joint,) = parts("DP-SELECT 1 region, month FROM t")
    assert (joint.groups, joint.noises[0].scale) == (36, 20)
    pairs = parts("DP-SELECT 1 region, amount, balance, month FROM t")
    assert [part.groups for part in pairs] == [3 * 32, 3 * 32, 3 * 12, 32 * 32, 32 * 12, 32 * 12]
    assert sum(spent(part) for part in pairs) == 1
    monkeypatch.setattr("sfumato.sql.rows._MOST_PAIRS", 0)  # as for tables of many columns
    chain = parts("DP-SELECT 1 region, amount, balance, month FROM t")
    assert [part.groups for part in chain] == [3 * 32, 32 * 32, 32 * 12]
    assert sum(spent(part) for part in chain) == 1


def test_explain_states_the_plan():
    found = plan("DP-SELECT 1 region, COUNT(*) FROM t GROUP BY region")
    text = explain_query(found, errors={"n": "little"}, left=Fraction(10), admitted=True)
    for words in ("at most 20 records", "3, public", "scale 20, sensitivity 20 (L1)", "n: little", "fits"):
        assert words in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("COUNT(*) FROM t WHERE at < current_date", "clock"),
        ("SUM(n) FROM (SELECT region, COUNT(*) AS n FROM t GROUP BY region) AS x", "GROUP BY"),
        ("SUM(n) FROM (SELECT COUNT(*) AS n FROM t) AS x", "aggregate in an inner"),
    ],
)
def test_what_a_curator_makes_plain_first_is_refused_by_the_planner(text, reason):
    with pytest.raises(UnsupportedQuery, match=reason):
        plan(f"DP-SELECT 1 {text}")


def test_a_negative_half_is_rounded_as_the_engine_rounds_it():
    assert Measure(statistic="sum", low=Fraction(-5, 2), high=Fraction(0), grid=1).largest == 3


def test_within_finds_epsilon_for_sums_of_large_numbers():
    statement = read_statement("DP-SELECT WITHIN 1000000000 SUM(amount * 10000000) AS s FROM t")
    assert least_epsilon(
        lambda epsilon: plan_query(statement, catalog(), epsilon=epsilon, selection_delta=Fraction(0)),
        Fraction(10**9),
    )


def test_the_delta_of_a_selection_is_taken_from_the_measures():
    statement = read_statement("DP-SELECT 1 DELTA 1e-6 note, COUNT(DISTINCT person) FROM t GROUP BY note")
    found = plan_query(statement, catalog(), epsilon=Fraction(1), selection_delta=Fraction(1, 100))
    (noise,) = found.noises
    # Half of delta for the selection, and so the other half, not all of it, for the Gaussian noise.
    assert found.selection.cost.delta == Fraction(1, 2 * 10**6)
    assert noise.kind == "gaussian"
    left = {"epsilon": Fraction(1, 2), "sensitivity": noise.costs[0].sensitivity, "count": 1}
    assert float(noise.scale) == pytest.approx(
        discrete_gaussian_sigma(delta=Fraction(1, 2 * 10**6), **left), abs=2e-6
    )
    assert float(noise.scale) > discrete_gaussian_sigma(delta=Fraction(1, 10**6), **left) + 1


@pytest.mark.parametrize("delta", ["1e-6", "1e-9", "3e-8"])
@pytest.mark.parametrize("reserve", ["1e-3", "1e-7"])
def test_what_a_selection_takes_and_what_it_leaves_add_up(delta, reserve):
    from sfumato.sql.plan import plan_selection

    found = plan("DP-SELECT 1 DELTA 1e-7 note, COUNT(*) FROM t GROUP BY note")
    chosen, epsilon, left = plan_selection(
        found.unit, found.keys, 20, Fraction(1), Fraction(delta), Fraction(reserve), parts=3
    )
    assert chosen.cost.delta > 0
    assert chosen.cost.delta + left == Fraction(delta)
    assert chosen.cost.epsilon + epsilon == 1
    assert plan_selection(found.unit, (), 20, Fraction(1), Fraction(delta), Fraction(reserve), parts=3) == (
        None,
        1,
        Fraction(delta),
    )


UNITS = [
    "DP-SELECT 1 COUNT(*) FROM t a JOIN t b ON a.person = b.person",
    "DP-SELECT 1 COUNT(*) FROM t a JOIN t b USING (person)",
    "DP-SELECT 1 COUNT(*) FROM t a LEFT JOIN t b ON a.month = b.month AND b.person = a.person",
    "DP-SELECT 1 COUNT(*) FROM (SELECT person AS who FROM t) a JOIN t b ON a.who = b.person",
    "DP-SELECT 1 COUNT(*) FROM t a JOIN t b ON a.person = b.person JOIN t c ON a.person = c.person",
    "WITH w AS (SELECT * FROM t) DP-SELECT 1 COUNT(*) FROM w a JOIN w b ON a.person = b.person",
]


@pytest.mark.parametrize("text", UNITS)
def test_every_join_of_private_tables_matches_the_individuals_themselves(text):
    """What the statement compares may be a copy that lost something; the unit itself is compared too."""
    found = plan(text)
    joins = found.relation.tree.args["joins"]
    assert joins
    for join in joins:
        pairs = [
            (each.this.find(exp.Column), each.expression.find(exp.Column))
            for each in join.args["on"].find_all(exp.EQ)
        ]
        assert any(one.name == two.name == UNIT and one.table != two.table for one, two in pairs)


def test_a_chosen_group_of_fewer_than_k_individuals_stays_unseen_as_one_of_a_single_does():
    unit = PrivacyUnit(column="p", max_records=3)
    key = Key(node=exp.column("note"), tree=exp.column("note"), labels=None)

    def choose(k):
        half, small = Fraction(1, 2), Fraction(1, 10**6)
        found, _, _ = plan_selection(unit, (key,), 3, half, small, small, parts=1, min_individuals=k)
        return found

    one = choose(2)
    for k in (3, 4, 10, 101):
        found = choose(k)
        assert (found.scale, found.cost) == (one.scale, one.cost)
        # k - 1 individuals are k - 2 more than the one for whom the threshold is made.
        assert found.threshold == one.threshold + k - 2


@pytest.mark.parametrize(("neighbours", "most"), [("add-remove", 50), ("replace", 100)])
def test_a_record_may_go_from_one_side_of_a_centre_to_the_other(neighbours, most):
    found = plan("DP-SELECT 1 AVG(amount) FROM t").noises
    (total,) = [each.measure for each in found if each.measure.statistic == "sum"]
    assert (total.low, total.high, total.centre) == (0, 100, 50)
    unit = PrivacyUnit(column="p", max_records=1, neighbours=neighbours)
    for norm in ("L1", "L2"):
        assert bound_measure(total, unit, 1, norm=norm) == most * total.grid
