"""What a select list asks for: group keys, and the bounded sums and counts that its aggregates need.

COUNT, SUM and the like are measured. AVG, VARIANCE, STDDEV, COVAR, CORR and REGR follow from measured sums
and counts, so nothing about the number of records is assumed. Sums are of whole numbers on a grid, clamped to
public bounds, which gives them a sensitivity whatever the records hold. Quantiles, MODE and TOP are
chosen from a histogram over public steps or labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from sqlglot import exp, parse_one

from sfumato.core.algebra.measures import CELLS, MOST_PLACES, OPEN, Measure
from sfumato.core.errors import refuse
from sfumato.core.facts.table import code_name
from sfumato.sql.check import check_scalar, finite_labels, is_histogram, is_top
from sfumato.sql.constants import to_microseconds
from sfumato.sql.dates import read_labels
from sfumato.sql.magnitudes import EDGES, INTERVALS, grid_between, is_marked, unmark
from sfumato.sql.relation import Relation, bounds_of, count_values, is_whole, labels_of
from sfumato.sql.rollups import GroupingSet, has_sets, list_leaves, read_sets
from sfumato.sql.settle import is_day, kind_of, qualify, qualify_condition, require_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.core.facts.domain import Label

AggregateKind = Literal[
    "measure",
    "average",
    "variance",
    "deviation",
    "mode",
    "quantiles",
    "covariance",
    "correlation",
    "slope",
    "intercept",
    "determination",
]

# A sum has about so many steps between its bounds, a square so many between zero and its largest.
_FINEST = 2**20
_SQUARES = 2**16
_FINEST_SHARE = 10**6
# All groups of a quantile have about so many steps together.
_STEPS_AT_ONCE = 2**20
_PAIRED: dict[type[exp.Expr], AggregateKind] = {
    exp.CovarPop: "covariance",
    exp.CovarSamp: "covariance",
    exp.Corr: "correlation",
    exp.RegrR2: "determination",
    exp.RegrSlope: "slope",
    exp.RegrIntercept: "intercept",
    exp.RegrCount: "measure",
}
_MANY_LABELS = 8
# Text first, so that a name in quotes is not looked for inside it.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")*)\"""")
_MOST_PARTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A group key: the tree that gives its code (or its text), and its labels if they are public.

    With a `type`, of dates or moments, labels are the numbers that such a column is stored in.
    """

    node: exp.Expr
    tree: exp.Expr
    labels: tuple[Label, ...] | None
    type: pa.DataType | None = None

    @property
    def is_open(self) -> bool:
        """Whether the groups are in the records only, so that they must be chosen privately."""
        return self.labels is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """An aggregate as written: how it follows from its measures.

    With a `type`, it is a date, measured in days from 1970, or a moment, in seconds.
    """

    measures: tuple[Measure, ...]
    kind: AggregateKind = "measure"
    sample: bool = False
    type: pa.DataType | None = None


def name_item(item: exp.Expr, text: str, *, plain: bool = False) -> str:
    """The name of an item of a select list: its alias, or else `text`, without the quotes around names.

    A column of a `plain` SELECT, or one in quotes, is called by its own name, as tools expect.
    """
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column) and (plain or '"' in text):
        return bare_name(text)
    return _QUOTED.sub(lambda found: found[0] if found[1] is None else found[1].replace('""', '"'), text)


def bare_name(text: str) -> str:
    """The name of a column as it is written, without the names before it and without quotes.

    >>> bare_name('"public"."visits"."Clinic"'), bare_name("visits.clinic")
    ('Clinic', 'clinic')
    """
    last = re.search(r'"((?:[^"]|"")*)"\s*$|([^".\s]+)\s*$', text)
    if last is None:
        return text
    return last[1].replace('""', '"') if last[1] is not None else last[2]


def spell_position(node: exp.Expr, query: exp.Select, *, where: str) -> exp.Expr:
    """The item of the select list that a whole number stands for; anything else as it is."""
    if not (isinstance(node, exp.Literal) and node.is_int):
        return node
    position = int(node.this)
    if not 1 <= position <= len(query.expressions):
        raise refuse(f"{where} {position}: the select list has {len(query.expressions)} items")
    target: exp.Expr = query.expressions[position - 1].unalias()
    return target


def read_rows(query: exp.Select) -> tuple[int | None, int]:
    """The whole numbers of LIMIT and OFFSET; None and 0 if there are none."""
    numbers: list[int | None] = []
    for name in ("limit", "offset"):
        clause = query.args.get(name)
        node = None if clause is None else clause.expression
        if clause is None:
            numbers.append(None)
        elif not isinstance(node, exp.Literal) or not node.is_int or clause.args.get("limit_options"):
            raise refuse(f"{name.upper()} takes a whole number of rows, not a share")
        else:
            numbers.append(int(node.this))
    return numbers[0], numbers[1] or 0


def read_keys(
    query: exp.Select, relation: Relation
) -> tuple[tuple[Key, ...], tuple[GroupingSet, ...] | None]:
    """The keys of GROUP BY, by name, by position, by alias or by expression, and its grouping sets if any."""
    group = query.args.get("group")
    if group is None:
        return (), None
    for name in ("grouping_sets", "cube", "rollup", "totals", "all"):
        if group.args.get(name):
            raise refuse(f"GROUP BY {name.upper().replace('_', ' ')} as it is written here; list the columns")
    aliases = {item.alias.lower(): item.this for item in query.expressions if isinstance(item, exp.Alias)}
    keys = []
    leaves = list_leaves(group)
    for item in leaves:
        node = spell_position(item, query, where="GROUP BY")
        if isinstance(node, exp.Column) and not node.table:
            node = aliases.get(node.name.lower(), node)
        if not isinstance(node, exp.Literal) or has_sets(group):
            keys.append(read_key(node, relation))
    texts = [key.node.sql() for key in keys]
    if has_sets(group):
        known = list(dict.fromkeys(texts))
        numbers = {id(leaf): known.index(text) for leaf, text in zip(leaves, texts, strict=True)}
        return tuple(keys[texts.index(text)] for text in known), read_sets(group, numbers)
    return tuple(dict(zip(texts, keys, strict=True)).values()), None


def read_key(node: exp.Expr, relation: Relation, *, where: str = "GROUP BY") -> Key:
    """The key that groups by `node`; `where` is what a refusal calls the place."""
    tree = qualify(node, relation, where=where)
    labels = labels_of(tree, relation)
    if isinstance(tree, exp.Column):
        alias, field = relation.find(tree)
        if field.is_unit:
            raise refuse(
                "GROUP BY the unit would single out individuals; COUNT(DISTINCT unit) counts them, and what "
                "is computed of each stands in an inner query: AVG(n) FROM (SELECT unit, COUNT(*) AS n ...)"
            )
        if field.refers_to is not None and where == "GROUP BY":
            parent = field.refers_to[0]
            raise refuse(
                f"GROUP BY {field.name}: a row of {parent} belongs to one individual, so that groups would "
                f"single people out; GROUP BY columns of {parent} with public values, or ask what is usual: "
                f"AVG(n) FROM (SELECT unit, {field.name}, SUM(...) AS n ... GROUP BY unit, {field.name})"
            )
        if field.column is not None:
            code = exp.column(code_name(field.name), table=alias, quoted=True)
            return Key(node=tree, tree=code, labels=field.column.labels)
        if field.is_drafted:
            raise refuse(f"{where} {field.name}: its domain was drafted from the data; see accept_drafted")
        labels = field.labels if field.labels is not None else labels
        labels = (False, True) if labels is None and field.kind == "boolean" else labels
    elif relation.uses_unit(tree):
        raise refuse("GROUP BY computes with the unit, which would single out individuals")
    if labels is None:
        found = read_labels(tree, relation)
        if found is not None:
            return Key(node=tree, labels=found[0], tree=found[1], type=found[2])
        return Key(node=tree, tree=exp.cast(tree, "VARCHAR"), labels=None)
    shown = tuple(str(each).lower() if isinstance(each, bool) else each for each in labels)
    return Key(node=tree, tree=_code_of(tree, labels), labels=shown)


def read_aggregate(node: exp.Expr, relation: Relation) -> Aggregate:
    """The aggregate that `node` asks for."""
    condition: exp.Expr | None = None
    if isinstance(node, exp.Filter):
        condition = qualify_condition(node.expression.this, relation, where="FILTER")
        node = node.this
    if is_histogram(node):
        raise refuse("HISTOGRAM stands by itself in the select list, beside columns of GROUP BY")
    if is_top(node) or isinstance(node.this if isinstance(node, exp.WithinGroup) else node, exp.Mode):
        return _read_mode(node, relation, condition)
    if isinstance(node, exp.Count):
        return _read_count(node, relation, condition)
    if isinstance(node, exp.CountIf):
        test = qualify_condition(node.this, relation, where="COUNT_IF")
        return _single(_where(test if condition is None else exp.and_(condition, test)))
    if type(node) in _PAIRED:
        return _read_paired(node, relation, condition)
    target, where, share = node.this, node.key.upper(), None
    where = "APPROX_QUANTILES" if isinstance(node, exp.ApproxQuantiles) else where
    if isinstance(node, exp.WithinGroup):
        target, where, share = _read_within_group(node)
    operand = _read_operand(target, relation, where)
    private = operand if _is_private(target, operand, relation) else None
    if kind_of(operand, relation) == "date" and not isinstance(node, (exp.Sum, exp.Avg, exp.ApproxQuantiles)):
        return _read_date(node, operand, relation, condition, where, share)
    low, high = _require_bounds(target, operand, relation, where)
    tree = only_where(condition, operand)
    whole = is_whole(operand, relation)
    if isinstance(node, exp.Sum):
        return _single(_sum(tree, low, high, whole=whole, centre=Fraction(0), private=private))
    centred = _sum(tree, low, high, whole=whole, private=private)
    present = Measure(statistic="present", tree=tree, is_number=True)
    if isinstance(node, exp.Avg):
        return Aggregate(kind="average", measures=(centred, present))
    deviation = isinstance(node, (exp.Stddev, exp.StddevPop, exp.StddevSamp))
    if deviation or isinstance(node, (exp.Variance, exp.VariancePop)):
        square = _square(tree, low, high, private=private)
        return Aggregate(
            kind="deviation" if deviation else "variance",
            measures=(centred, square, present),
            sample=isinstance(node, (exp.Variance, exp.Stddev, exp.StddevSamp)),
        )
    if isinstance(node, exp.ApproxQuantiles):
        parts = _read_parts(node)
        measure = Measure(statistic="quantile", tree=tree, low=low, high=high, parts=parts, private=private)
        return Aggregate(kind="quantiles", measures=(measure,))
    share = _quantile_of(node) if share is None else share
    return _single(_quantile(tree, low, high, share, whole=whole, private=private))


def _quantile(
    tree: exp.Expr,
    low: Fraction,
    high: Fraction,
    share: Fraction,
    *,
    whole: bool,
    private: exp.Expr | None = None,
) -> Measure:
    """A quantile among as many steps as may be: one for each whole number, or `MOST_PLACES`.

    MIN and MAX aim the farther inside the more steps there are, so that they have no more than `CELLS`.
    """
    whole = whole and low.denominator == high.denominator == 1
    most = CELLS if share in (0, 1) else MOST_PLACES
    steps = min(most, int(high - low)) if whole else most
    return Measure(
        statistic="quantile",
        tree=tree,
        low=low,
        high=high,
        quantile=share,
        private=private,
        steps=steps,
        whole=whole,
    )


def limit_steps(aggregate: Aggregate, groups: int) -> Aggregate:
    """The same with no more steps of a quantile than so many groups have memory for."""
    most = max(CELLS, _STEPS_AT_ONCE // groups)
    measures = tuple(replace(each, steps=most) if each.steps > most else each for each in aggregate.measures)
    return replace(aggregate, measures=measures)


def _read_paired(node: exp.Expr, relation: Relation, condition: exp.Expr | None) -> Aggregate:
    """CORR, COVAR and REGR of two columns, over the records that have both.

    Measures are the sums of both, the sum of their products, the number of records, and where they are needed
    the sum of squares of the second and of the first.
    """
    kind, where = _PAIRED[type(node)], node.key.upper().replace("REGR", "REGR_").replace("COVAR", "COVAR_")
    targets = (node.this, node.expression)
    operands = [_read_operand(each, relation, where) for each in targets]
    pairs = list(zip(targets, operands, strict=True))
    ends = [_require_bounds(target, operand, relation, where) for target, operand in pairs]
    chosen = [operand if _is_private(target, operand, relation) else None for target, operand in pairs]
    for operand in operands:
        both = exp.Not(this=exp.IsNan(this=exp.TryCast(this=operand.copy(), to=exp.DataType.build("DOUBLE"))))
        condition = both if condition is None else exp.and_(condition, both)
    present = _where(condition)
    if kind == "measure":
        return _single(present)
    sums, squares, shares = [], [], []
    for operand, (low, high), private in zip(operands, ends, chosen, strict=True):
        tree, whole = only_where(condition, operand), is_whole(operand, relation)
        sums.append(_sum(tree, low, high, whole=whole, private=private))
        squares.append(_square(tree, low, high, private=private))
        shares.append(_scaled(operand, low, high))
    product = Measure(
        statistic="sum",
        tree=only_where(condition, exp.Mul(this=shares[0], expression=shares[1])),
        low=Fraction(-1),
        high=Fraction(1),
        grid=_FINEST,
    )
    needed = {"covariance": [], "slope": squares[1:], "intercept": squares[1:]}.get(kind, squares[::-1])
    measures = (*sums, product, present, *needed)
    return Aggregate(kind=kind, measures=measures, sample=isinstance(node, exp.CovarSamp))


def _scaled(operand: exp.Expr, low: Fraction, high: Fraction) -> exp.Expr:
    """A number clamped to its bounds, as a share of half the range from its middle: from -1 to 1."""
    text = operand.sql(dialect="duckdb")
    clamped = f"least(greatest(TRY_CAST({text} AS DOUBLE), {float(low)!r}::DOUBLE), {float(high)!r}::DOUBLE)"
    centre, half = float((low + high) / 2), float((high - low) / 2)
    return parse_one(f"(({clamped} - {centre!r}::DOUBLE) / {half!r}::DOUBLE)", read="duckdb")


def _read_date(
    node: exp.Expr,
    operand: exp.Expr,
    relation: Relation,
    condition: exp.Expr | None,
    where: str,
    share: Fraction | None,
) -> Aggregate:
    """MIN, MAX and other quantiles of a column of dates with a public range, in days or seconds."""
    column = operand.find(exp.Column)
    first, stop = (relation.field(column).moments if column is not None else None) or (None, None)
    if first is None or stop is None or not isinstance(operand, exp.Column):
        raise refuse(
            f"{where} of dates needs a column with a public range; declare it in the project file: "
            'range = ["2019-01-01", "2025-12-31"]'
        )
    if first >= stop:
        raise refuse(f"WHERE leaves no moment of the public range of {operand.name!r}")
    days = is_day(operand, relation)
    step = 86_400 * 10**6 if days else 10**6
    count = exp.Anonymous(this="epoch_us", expressions=[operand.copy()])
    low, high = Fraction(to_microseconds(first), step), Fraction(to_microseconds(stop), step)
    if days and high.denominator == 1:
        high = max(low + 1, high - 1)  # the last day, where there is more than one
    tree = only_where(condition, exp.Div(this=count, expression=exp.Literal.number(step)))
    measure = _quantile(tree, low, high, _quantile_of(node) if share is None else share, whole=days)
    return Aggregate(measures=(measure,), type=pa.date32() if days else pa.timestamp("us"))


def _code_of(tree: exp.Expr, labels: Sequence[Label | bool]) -> exp.Expr:
    """A CASE that gives the position of the label that `tree` takes, NULL if it takes none."""
    bare = tree.unnest()
    if isinstance(bare, exp.Case) and len(labels) > _MANY_LABELS and finite_labels(bare) is not None:
        return _code_results(bare, labels)
    if isinstance(bare, exp.Column) and isinstance(labels[0], int) and len(labels) > _MANY_LABELS:
        first = labels[0]
        if labels[-1] == first + len(labels) - 1 and list(labels) == list(range(first, first + len(labels))):
            return exp.Sub(this=bare.copy(), expression=exp.convert(first))
    # `Case.when` would copy all branches for each, and there may be thousands.
    tests = (exp.EQ(this=exp.paren(tree.copy()), expression=exp.convert(label)) for label in labels)
    return exp.Case(
        ifs=[exp.If(this=test, true=exp.Literal.number(place)) for place, test in enumerate(tests)]
    )


def _code_results(tree: exp.Case, labels: Sequence[Label | bool]) -> exp.Expr:
    """The same CASE with the positions of its results in their place, written once for all labels."""
    codes = {str(label): exp.Literal.number(place) for place, label in enumerate(labels)}
    coded = tree.copy()
    for branch in coded.args["ifs"]:
        branch.set("true", codes[branch.args["true"].name].copy())
    default = coded.args.get("default")
    if default is not None and not isinstance(default, exp.Null):
        coded.set("default", codes[default.name].copy())
    return coded


def _read_mode(node: exp.Expr, relation: Relation, condition: exp.Expr | None) -> Aggregate:
    """MODE(column), MODE() WITHIN GROUP (ORDER BY column) and TOP(column, k)."""
    name = "TOP" if is_top(node) else "MODE"
    target, chosen = _mode_target(node, name)
    check_scalar(target, where=name)
    if relation.uses_unit(target):
        raise refuse(f"{name} of the unit, or of what is computed with it, would single out individuals")
    key = read_key(target, relation, where=name)
    if key.labels is None:
        raise refuse(
            f"{name} chooses among public labels, and {target.sql()[:60]!r} has none; declare them in the "
            "project file: [tables.TABLE.columns.COLUMN] values = [...]"
        )
    if len(key.labels) > CELLS + 1:
        raise refuse(
            f"{name} chooses among at most {CELLS + 1:,} labels, and {target.sql()[:60]!r} has "
            f"{len(key.labels):,}; GROUP BY it, ORDER BY COUNT(*) DESC and LIMIT"
        )
    if chosen > len(key.labels):
        raise refuse(f"TOP asks for {chosen} labels of {len(key.labels)}")
    measure = Measure(
        statistic="quantile",
        tree=only_where(condition, key.tree),
        high=Fraction(CELLS),
        labels=key.labels,
        chosen=chosen,
        numbered=is_top(node),
    )
    return Aggregate(kind="mode", measures=(measure,))


def _mode_target(node: exp.Expr, name: str) -> tuple[exp.Expr, int]:
    """What is counted by its labels, and how many of these are asked for."""
    if isinstance(node, exp.WithinGroup):
        ordered = node.expression.expressions
        if node.this.this is not None or len(ordered) != 1:
            raise refuse("MODE is read as MODE(column) or MODE() WITHIN GROUP (ORDER BY column)")
        return ordered[0].this, 1
    parts = list(node.expressions) if is_top(node) else [node.this]
    target = parts[0] if parts else None
    unread = (exp.Star, exp.Distinct, exp.Order)
    if target is None or isinstance(target, unread) or node.args.get("deterministic"):
        raise refuse(f"{name} takes one column: MODE(region), TOP(region, 3)")
    if name == "MODE":
        return target, 1
    count = parts[1] if len(parts) == 2 else None
    if not isinstance(count, exp.Literal) or not count.is_int or len(count.this) > 9 or int(count.this) < 1:
        raise refuse("TOP takes a column and a whole number above zero: TOP(region, 3)")
    return target, int(count.this)


def _read_count(node: exp.Count, relation: Relation, condition: exp.Expr | None) -> Aggregate:
    target = node.this
    if isinstance(target, exp.Star):
        one = Measure(statistic="records")
        return _single(one if condition is None else _where(condition))
    if isinstance(target, exp.Distinct):
        if len(target.expressions) != 1 or node.expressions:
            raise refuse("COUNT(DISTINCT ...) takes one column; join several: COUNT(DISTINCT a || ' ' || b)")
        tree = qualify(target.expressions[0], relation, where="COUNT(DISTINCT)")
        if isinstance(tree, exp.Column) and relation.field(tree).is_unit:
            if condition is not None:
                raise refuse("COUNT(DISTINCT unit) with FILTER; put the condition into WHERE")
            return _single(Measure(statistic="individuals"))
        refuse_unit(tree, relation, "COUNT(DISTINCT)")
        most = count_values(tree, relation)
        return _single(Measure(statistic="distinct", tree=only_where(condition, tree), high=most))
    if target is None or node.expressions:
        raise refuse("COUNT takes * or one column: COUNT(*), COUNT(fare), COUNT(DISTINCT zone)")
    tree = qualify(target, relation, where="COUNT")
    # A number that is not a number contributes nothing, to COUNT as to SUM and AVG.
    number = bounds_of(tree, relation) is not None or _has_private_bounds(tree, relation)
    return _single(Measure(statistic="present", tree=only_where(condition, tree), is_number=number))


def _where(condition: exp.Expr | None) -> Measure:
    return Measure(statistic="present", tree=only_where(condition, exp.Literal.number(1)))


def _single(measure: Measure) -> Aggregate:
    return Aggregate(measures=(measure,))


def _read_within_group(node: exp.WithinGroup) -> tuple[exp.Expr, str, Fraction]:
    """The expression that is ordered, the name of the quantile's function, and its share."""
    inner, order = node.this, node.expression
    if not isinstance(inner, (exp.PercentileCont, exp.PercentileDisc)) or len(order.expressions) != 1:
        raise refuse("WITHIN GROUP is read as PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY column)")
    (ordered,) = order.expressions
    share = _read_share(inner.this)
    return ordered.this, inner.key.upper(), 1 - share if ordered.args.get("desc") else share


def _read_operand(target: exp.Expr | None, relation: Relation, name: str) -> exp.Expr:
    if isinstance(target, exp.Distinct):
        raise refuse(
            f"{name}(DISTINCT ...) has no private form here; {name} without DISTINCT has, or COUNT(DISTINCT)"
        )
    if target is None or isinstance(target, exp.Star):
        raise refuse(f"{name} needs a column")
    tree = qualify(unmark(target), relation, where=name)
    refuse_unit(tree, relation, name)
    return tree


def refuse_unit(tree: exp.Expr, relation: Relation, name: str) -> None:
    """Refuses an aggregate, called `name`, of names of individuals."""
    if relation.uses_unit(tree):
        raise refuse(f"{name} over the unit's own value; only COUNT(DISTINCT unit) is answered")


def _has_private_bounds(operand: exp.Expr, relation: Relation) -> bool:
    """Whether the project file leaves bounds of an operand to be chosen, and none is missing besides."""
    fields = [relation.field(each) for each in operand.find_all(exp.Column)]
    known = all(each.bounds is not None or each.is_private for each in fields)
    return known and any(each.is_private for each in fields)


def _is_private(target: exp.Expr, operand: exp.Expr, relation: Relation) -> bool:
    """Whether the bounds of an operand are to be chosen: it is marked, or the project file says so."""
    unknown = bounds_of(operand, relation) is None and _has_private_bounds(operand, relation)
    return is_marked(target) or unknown


def measure_magnitudes(operand: exp.Expr) -> Measure:
    """The histogram from which the bounds of an operand are chosen."""
    return Measure(statistic="quantile", tree=operand, labels=tuple(range(INTERVALS)), chosen=0, edges=EDGES)


def _require_bounds(
    target: exp.Expr, operand: exp.Expr, relation: Relation, name: str
) -> tuple[Fraction, Fraction]:
    if _is_private(target, operand, relation):
        require_number(operand, relation, name)
        return relation.chosen.get(operand.sql(dialect="duckdb"), OPEN)
    return require_bounds(operand, relation, name)


def require_bounds(operand: exp.Expr, relation: Relation, name: str) -> tuple[Fraction, Fraction]:
    """The public bounds of an operand of the aggregate `name`, or a refusal that says how to declare them."""
    bounds = bounds_of(operand, relation)
    if bounds is None:
        columns = list(operand.find_all(exp.Column))
        about = f"column {columns[0].name!r}" if columns else "the expression"
        # Of several tables, or of an inner query, it is not known here which one has it.
        table = relation.tables[0] if len(relation.tables) == 1 else "TABLE"
        column = columns[0].name if columns else "COLUMN"
        if any(relation.field(each).is_drafted for each in columns):
            raise refuse(
                f"{name}: {about} was drafted from the data; write public bounds, or accept_drafted = true"
            )
        if columns and all(bounds_of(each, relation) is not None for each in columns):
            raise refuse(
                f"{name} clamps to public bounds; those of the columns in {operand.sql()[:60]} give none; "
                f"write {name}(... BOUNDED PRIVATELY)"
            )
        raise refuse(
            f"{name} clamps to public bounds, and {about} has none; declare them in the project file: "
            f"[tables.{table}.columns.{column}] bounds = [low, high]; or write {name}(... BOUNDED PRIVATELY)"
        )
    low, high = Fraction(bounds[0]), Fraction(bounds[1])
    if low == high:
        high = low + 1
    if float(high) - float(low) < 1e-9 * max(abs(float(low)), abs(float(high)), 1.0):
        raise refuse(
            f"{name}: bounds so close together cannot be told apart; shift or rescale the expression"
        )
    if max(abs(low), abs(high)) > 2**32:
        raise refuse(f"{name}: bounds beyond 2^32; rescale the expression, for example divide by 1000")
    return low, high


def _sum(
    tree: exp.Expr,
    low: Fraction,
    high: Fraction,
    *,
    whole: bool,
    centre: Fraction | None = None,
    private: exp.Expr | None,
) -> Measure:
    """The sum of distances from `centre`, or the middle, on a grid that whole numbers lie on exactly."""
    grid, moved = 1, centre is None
    centre = (low + high) / 2 if centre is None else centre
    if private is not None:
        grid = grid_between(low, high, centre)
        # A plain sum and one from the middle stay two, even if 0 is the middle of what is chosen: what is
        # measured was charged for before.
        return Measure(
            statistic="sum",
            tree=tree,
            low=low,
            high=high,
            centre=centre,
            grid=grid,
            is_number=moved,
            private=private,
        )
    if not (whole and centre.denominator == 1):
        while (high - low) * grid * 2 <= _FINEST:
            grid *= 2
    if centre.denominator == 2 and whole:
        grid = 2
    return Measure(statistic="sum", tree=tree, low=low, high=high, centre=centre, grid=grid)


def _square(tree: exp.Expr, low: Fraction, high: Fraction, *, private: exp.Expr | None) -> Measure:
    """The sum of squares of distances from the middle, in units of half the range."""
    return Measure(
        statistic="square",
        tree=tree,
        low=low,
        high=high,
        centre=(low + high) / 2,
        grid=_SQUARES,
        private=private,
    )


def _quantile_of(node: exp.Expr) -> Fraction:
    match node:
        case exp.Min():
            return Fraction(0)
        case exp.Max():
            return Fraction(1)
        case exp.Median():
            return Fraction(1, 2)
        case exp.Quantile() | exp.ApproxQuantile():
            return _read_share(node.args.get("quantile"))
        case exp.PercentileCont() | exp.PercentileDisc():
            return _read_share(node.args.get("expression"))
        case _:
            raise refuse(f"{node.key.upper()} has no private form here")


def _read_parts(node: exp.ApproxQuantiles) -> int:
    count = node.expression
    if not isinstance(count, exp.Literal) or not count.is_int or not 1 <= int(count.this[:9]) <= _MOST_PARTS:
        raise refuse(
            f"APPROX_QUANTILES takes a column and 1 to {_MOST_PARTS} parts: APPROX_QUANTILES(fee, 4)"
        )
    return int(count.this)


def _read_share(node: exp.Expr | None) -> Fraction:
    if (
        not isinstance(node, exp.Literal)
        or not node.is_number
        or len(node.this) > 40
        or "e" in node.this.lower()
        or not 0 <= Fraction(str(node.this)) <= 1
    ):
        raise refuse(
            "a quantile is a number between 0 and 1, such as QUANTILE(fare, 0.9); for many at once "
            "APPROX_QUANTILES(fare, 10)"
        )
    if Fraction(str(node.this)).denominator > _FINEST_SHARE:
        raise refuse("a quantile has at most six decimals")
    return Fraction(str(node.this))


def only_where(condition: exp.Expr | None, tree: exp.Expr) -> exp.Expr:
    """`tree` where the condition of FILTER holds, NULL elsewhere."""
    return tree if condition is None else exp.Case().when(condition, tree)
