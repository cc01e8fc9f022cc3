"""What a statement may cost before it is charged: counted in parts and calls, never in seconds."""

import pytest

import sfumato as sf
from sfumato.sql import check, sources
from sfumato.sql.statement import read_statement

WIDE = "DP-SELECT 1 COUNT(*) FROM {} WHERE s = 'a'"


def nest(times, item="s || s AS s"):
    inner = "t"
    for place in range(times):
        inner = f"(SELECT {item} FROM {inner}) AS q{place}"
    return inner


def chain(times):
    """Queries of WITH, each of which joins the one before with itself."""
    ctes = ["a0 AS (SELECT person, month AS x FROM t)"]
    for place in range(1, times):
        left, right = f"a{place - 1} AS l", f"a{place - 1} AS r"
        ctes.append(f"a{place} AS (SELECT l.person, l.x FROM {left} JOIN {right} ON l.person = r.person)")
    return f"WITH {', '.join(ctes)} DP-SELECT 1 COUNT(*) FROM a{times - 1}"


def cast(times):
    text = "s"
    for _ in range(times):
        text = f"CAST({text} AS TIMESTAMP)"
    return text


SUM = "+".join(["COUNT(*)"] * 50)
OPTIONS = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({}) COUNT(*) FROM t"
LARGE = {
    "doubled names": WIDE.format(nest(16)),
    "doubled products": f"DP-SELECT 1 SUM(x) FROM {nest(16, 'x * x AS x')}",
    "through a star": f"DP-SELECT 1 COUNT(*) FROM (SELECT * FROM {nest(16)}) AS z WHERE s = 'a'",
    "doubled in WITH": f"WITH a AS (SELECT s FROM {nest(11)}), b AS (SELECT s || s AS s FROM a) "
    "DP-SELECT 1 COUNT(*) FROM b",
    "named in ORDER BY": f"DP-SELECT 1 {SUM} AS a FROM t ORDER BY {', '.join('a' * 100)}",
    "numbered in ORDER BY": f"DP-SELECT 1 {SUM} FROM t ORDER BY {', '.join('1' * 100)}",
    "moments of moments": f"DP-SELECT 1 COUNT(*) FROM t WHERE {cast(20)} > '2020-01-01'",
    "a long list": f"DP-SELECT 1 COUNT(*) FROM t WHERE month IN ({', '.join(map(str, range(6000)))})",
}
DEEP = {
    "text joined": f"DP-SELECT 1 COUNT(*) FROM t WHERE {'||'.join(['region'] * 180)} = 'a'",
    "brackets": f"DP-SELECT 1 COUNT(*) FROM t WHERE {'(' * 70}month = 1{')' * 70}",
    "more brackets": f"DP-SELECT 1 COUNT(*) FROM t WHERE {'(' * 5000}month = 1{')' * 5000}",
    "queries": WIDE.format(nest(40, "s")),
    "conditions": f"DP-SELECT 1 COUNT(*) FROM t WHERE {' OR '.join(['month = 1'] * 1200)}",
    "signs": f"DP-SELECT 1 SUM({'- ' * 400}month) FROM t",
}


def count_calls(monkeypatch, module, name):
    calls = []
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given, **options: (calls.append(1), real(*given, **options))[1])
    return calls


@pytest.mark.parametrize("what", LARGE)
def test_a_statement_that_stands_for_a_large_one_is_refused_by_looking_at_it_once(monkeypatch, what):
    weighed = count_calls(monkeypatch, check, "_weigh")
    with pytest.raises(sf.UnsupportedQuery, match="more than 5,000 parts"):
        read_statement(LARGE[what])
    assert len(weighed) < len(LARGE[what])


@pytest.mark.parametrize("what", DEEP)
def test_what_is_nested_too_deep_is_refused_before_the_charge(project, what):
    curator = sf.open(project)
    with pytest.raises(sf.UnsupportedQuery, match=r"deep|parts"):
        curator.sql(DEEP[what])
    assert not curator.has_ledger()


def test_queries_of_with_are_resolved_once(project, monkeypatch):
    resolved = count_calls(monkeypatch, sources, "_resolve_rows")
    curator = sf.open(project)
    assert "epsilon 1\n" in str(curator.sql(f"EXPLAIN {chain(4)}"))
    assert len(resolved) == 4
    with pytest.raises(sf.UnsupportedQuery, match="more than 8 joins"):
        curator.sql(chain(5))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n + n AS n FROM (" * 14 + "SELECT COUNT(*) AS n FROM t" + ") AS q" * 14,
        f"DP-SELECT 1 COUNT(*) FROM t WHERE {' || '.join(['region'] * 180)} > 'a'",
    ],
)
def test_what_grows_with_every_step_is_refused_by_its_size(project, text):
    curator = sf.open(project)
    for statement in (text, f"EXPLAIN {text}"):
        with pytest.raises(sf.UnsupportedQuery, match=r"deep|parts"):
            curator.sql(statement, epsilon=1)
    with pytest.raises(sf.UnsupportedQuery, match=r"deep|parts"):
        curator.describe(text, epsilon=1)
    assert not curator.has_ledger()


def test_a_wanted_error_plans_the_statement_once(project, monkeypatch):
    import sfumato.sql.planner as plan_module

    resolved = count_calls(monkeypatch, plan_module, "resolve_sources")
    sf.open(project).sql("EXPLAIN DP-SELECT WITHIN 100 COUNT(*) FROM t")
    assert len(resolved) == 1


def test_long_statements_that_are_not_large_are_answered(project):
    curator = sf.open(project)
    for condition in (
        " OR ".join(f"month = {number}" for number in range(100)),
        f"month IN ({', '.join(map(str, range(2000)))})",
        f"{'||'.join(['region'] * 50)} = 'a'",
    ):
        curator.sql(f"EXPLAIN DP-SELECT 1 COUNT(*) FROM t WHERE {condition}")
    curator.sql(f"EXPLAIN DP-SELECT 1 COUNT(*) FROM {nest(15, 'region AS region')}")


@pytest.mark.parametrize("delta", ["0.1", "0.9999999999", "1", "-1e-9"])
def test_a_delta_that_guarantees_nothing_is_refused(project, delta):
    for text in (
        f"DP-SELECT 1 DELTA {delta} COUNT(*) FROM t",
        OPTIONS.format(f"epsilon=1, delta={delta}"),
    ):
        with pytest.raises(sf.RecipeError, match=r"below 0\.1"):
            read_statement(text)
    with pytest.raises(sf.RecipeError, match=r"below 0\.1"):
        sf.open(project).check(sf.recipes.CellCounts(table="t", by=("region",)), epsilon=1, delta=delta)
