"""What a plan asks of the records, in one way of writing: the same question is found however it is put.

A question is a relation, its conditions, group keys, bounded measures and their noise. Names of columns,
their order, HAVING, ORDER BY, LIMIT and what is computed of the noisy values are no part of it: they are done
to the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sfumato.core.algebra.measures import Measure
from sfumato.core.exact import digest
from sfumato.core.facts.table import UNIT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from sfumato.core.algebra.rows import Shape
    from sfumato.sql.aggregates import Key
    from sfumato.sql.plan import QueryPlan
    from sfumato.sql.relation import Relation

NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
    exp.GTE: exp.LT,
    exp.LT: exp.GTE,
}
"""What a comparison becomes under NOT; both are NULL together."""

_GIVEN = re.compile(r"t\d+", re.IGNORECASE)

# What a plan has beyond these enters the question as it is, so that it is never left out of it.
_FINISHING = ("text", "epsilon", "delta", "aggregates", "outputs", "stages", "around", "miss", "intervals")
_ASKED = (
    *("relation", "unit", "max_groups", "keys", "noises", "selection"),
    *("choices", "sets", "tally", "tallies", "held", "entering"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One measure of a question: what is measured of a record, and the conditions that it must meet.

    `COUNT(*) FILTER (WHERE x)` and `COUNT_IF(x)` are the number of records under the condition x.
    """

    measure: Measure
    text: str
    conditions: tuple[exp.Expr, ...] = ()

    def spell(self) -> str:
        """The measure with its conditions, in one way of writing."""
        when = sorted(spell(each) for each in self.conditions)
        return " ".join([self.text, *(f"if {each}" for each in when)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a plan asks: `source` is FROM with all that bounds it, `conditions` are what must all hold.

    `keys` and `asked` are in the order of the plan. `choice` is what decides which records of an individual
    with too many are kept. `axes` remembers what its labels say of its records.
    """

    source: str
    conditions: dict[str, exp.Expr]
    keys: tuple[str, ...]
    asked: tuple[Asked, ...]
    choice: str
    aliases: dict[str, str]
    axes: list[Any] = field(default_factory=list, compare=False, repr=False)

    def to_record(self) -> dict[str, Any]:
        """What the ledger keeps of a question, to find it again."""
        return {
            "source": short(self.source),
            "where": sorted(self.conditions),
            "keys": list(self.keys),
            "measures": [short(each.text) for each in self.asked],
            "asked": [short(each.spell()) for each in self.asked],
        }


def read_question(plan: QueryPlan, tables: Any = None) -> Question:  # noqa: ANN401 - a plain record
    """The question that `plan` asks; `tables` is a record of the described tables it reads."""
    relation = plan.relation
    aliases = {alias: f"t{place}" for place, alias in enumerate(relation.fields)}
    tree = rename_tables(relation.tree, aliases)
    where = tree.args.pop("where", None)
    conditions = {} if where is None else {spell(each): each for each in list_conditions(where.this)}
    asked = tuple(_read_measure(noise.measure, aliases) for noise in plan.noises)
    keys = tuple(spell_expression(key.node, aliases) for key in plan.keys)
    facts = {
        "from": tree.select("1", append=False).sql(dialect="duckdb"),
        "unit": plan.unit.describe(),
        "tables": tables,
        "relation": _list_shape(relation.shape),
        "plan": _list_facts(plan, without=(*_FINISHING, *_ASKED)),
    }
    return Question(
        source=digest(facts),
        conditions=conditions,
        keys=keys,
        asked=asked,
        choice=_describe_choice(plan, aliases),
        aliases=aliases,
    )


def can_reuse(plan: QueryPlan) -> bool:
    """Whether the question of a plan is told by its relation, keys and measures.

    Chosen bounds, norms, grouping sets, histograms and trees of quantiles are found by their text alone.
    """
    measures = [noise.measure for noise in plan.noises]
    plain = all(
        each.private is None and each.edges is None and each.clip is None and each.chosen and not each.parts
        for each in measures
    )
    inner = [node.alias for node in plan.relation.tree.find_all(exp.Table, exp.Subquery)]
    # A name of an inner query must not be one that tables are given here.
    clear = not any(_GIVEN.fullmatch(name) for name in inner if name.lower() not in plan.relation.fields)
    chosen = plan.choices or plan.tally or plan.tallies or plan.relation.chosen
    known = not chosen and plan.sets is None
    return plain and clear and known


def digest_question(plan: QueryPlan, question: Question) -> str:
    """The SHA-256 of a question with its noise: equal for equal questions, in whatever order they are put."""
    noisy = zip(question.asked, plan.noises, strict=True)
    pairs = zip(question.keys, plan.keys, strict=True)
    return digest(
        {
            "question": question.source,
            "where": sorted(question.conditions),
            "keys": sorted(question.keys),
            # Labels follow from how conditions are written, too, and an answer is stored by their places.
            "labels": sorted([text, _describe_labels(key)] for text, key in pairs),
            "max_groups": plan.max_groups,
            "measures": sorted(
                [each.spell(), noise.law[0], str(noise.law[1]), *noise.shares.get("choices", [])]
                for each, noise in noisy
            ),
            "selection": None if plan.selection is None else plan.selection.to_record(),
        }
    )


def _describe_labels(key: Key) -> str:
    labels = None if key.labels is None else [str(each) for each in key.labels]
    return digest({"labels": labels, "type": str(key.type)})


def reorder_plan(plan: QueryPlan, question: Question, record: dict[str, Any]) -> QueryPlan:
    """The plan with its keys and measures in the order of a record of the same question.

    So are the values of an answer that was stored when it was asked in that order.
    """
    keys = [question.keys.index(text) for text in record["keys"]]
    left = [(short(each.spell()), number) for number, each in enumerate(question.asked)]
    measures = []
    for text in record["asked"]:
        found = next(each for each in left if each[0] == text)
        left.remove(found)
        measures.append(found[1])
    return replace(
        plan,
        keys=tuple(plan.keys[place] for place in keys),
        noises=tuple(plan.noises[place] for place in measures),
    )


def short(text: str) -> str:
    """A few digits that tell texts apart, to look for candidates; what is found is compared in full."""
    return digest(text)[:16]


def spell(tree: exp.Expr) -> str:
    """A tree as text."""
    return tree.sql(dialect="duckdb")


def spell_expression(tree: exp.Expr, aliases: dict[str, str]) -> str:
    """An expression as text, with the names of tables as in every question, and without outer brackets."""
    return spell(_simplify(rename_tables(tree.unnest(), aliases)))


def list_conditions(condition: exp.Expr) -> list[exp.Expr]:
    """What must hold so that `condition` holds, each in one way of writing.

    >>> from sqlglot import parse_one
    >>> [each.sql() for each in list_conditions(parse_one("(a BETWEEN 1 AND 2) AND NOT b = 3"))]
    ['a <= 2', 'a >= 1', 'b <> 3']
    """
    plain = _simplify(condition)
    parts = list(plain.flatten()) if isinstance(plain, exp.And) else [plain]
    found = {spell(part): part for part in parts if part != exp.true()}
    return list(found.values())


def _simplify(tree: exp.Expr) -> exp.Expr:
    """An equal tree, true, false and NULL for the same records, in one of its ways of writing."""
    match tree:
        case exp.Paren():
            return _simplify(tree.this)
        case exp.Between() if not tree.args.get("symmetric"):
            low = exp.GTE(this=tree.this.copy(), expression=tree.args["low"].copy())
            high = exp.LTE(this=tree.this.copy(), expression=tree.args["high"].copy())
            return exp.And(this=low, expression=high)
        case exp.Not():
            return _negate(_simplify(tree.this))
        case exp.And() | exp.Or():
            return _gather(tree)
        case _:
            return tree.copy()


def _negate(tree: exp.Expr) -> exp.Expr:
    if type(tree) in NEGATED:
        return NEGATED[type(tree)](this=tree.this.copy(), expression=tree.expression.copy())
    if isinstance(tree, exp.Not):
        inner: exp.Expr = tree.this.unnest().copy()
        return inner
    if isinstance(tree, exp.In) and tree.expressions and not tree.args.get("query"):
        parts: list[exp.Expr] = [
            exp.NEQ(this=tree.this.copy(), expression=each.copy()) for each in tree.expressions
        ]
        return _join(exp.And, parts)
    if isinstance(tree, (exp.And, exp.Or)):
        other = exp.Or if isinstance(tree, exp.And) else exp.And
        return _simplify(_join(other, [_negate(each.unnest()) for each in tree.flatten()]))
    return exp.Not(this=tree.copy())


def _gather(tree: exp.Expr) -> exp.Expr:
    """AND or OR of parts in the order of their texts, each once; equalities of one thing are a list."""
    kind = type(tree)
    parts: dict[str, exp.Expr] = {}
    for part in (tree.this, tree.expression):
        plain = _simplify(part)
        for each in plain.flatten() if isinstance(plain, kind) else [plain]:
            bare = each.unnest()
            parts[spell(bare)] = bare
    if kind is exp.Or:
        parts = _list_equalities(parts)
    return _join(kind, [parts[text] for text in sorted(parts)])


def _list_equalities(parts: dict[str, exp.Expr]) -> dict[str, exp.Expr]:
    """The parts of an OR with `x = a` and `x IN (b, c)` as one list of x."""
    listed: dict[str, dict[str, exp.Expr]] = {}
    others: dict[str, exp.Expr] = {}
    heads: dict[str, exp.Expr] = {}
    for text, part in parts.items():
        values = None
        if isinstance(part, exp.EQ) and not part.expression.find(exp.Column):
            values = [part.expression]
        elif isinstance(part, exp.In) and part.expressions:
            values = part.expressions
        if values is None:
            others[text] = part
            continue
        head = spell(part.this)
        heads[head] = part.this
        listed.setdefault(head, {}).update({spell(each): each for each in values})
    for head, found in listed.items():
        values = [found[text].copy() for text in sorted(found, key=lambda text: (len(text), text))]
        this = heads[head].copy()
        one = exp.EQ(this=this, expression=values[0])
        part = one if len(values) == 1 else exp.In(this=this, expressions=values)
        others[spell(part)] = part
    return others


def _join(kind: type[exp.Expr], parts: list[exp.Expr]) -> exp.Expr:
    joined = parts[0].copy()
    for part in parts[1:]:
        right = part.copy()
        if isinstance(right, (exp.And, exp.Or)):
            right = exp.Paren(this=right)
        if isinstance(joined, (exp.And, exp.Or)) and not isinstance(joined, kind):
            joined = exp.Paren(this=joined)
        joined = kind(this=joined, expression=right)
    return joined


def rename_tables(tree: exp.Expr, aliases: dict[str, str]) -> Any:  # noqa: ANN401 - the kind that was given
    """A copy with other names for its tables; what stands in inner queries keeps its own."""
    tree = tree.copy()
    for node in list(tree.walk(prune=lambda each: isinstance(each, exp.Subquery))):
        if isinstance(node, exp.Column) and node.table in aliases:
            node.set("table", exp.to_identifier(aliases[node.table], quoted=True))
        elif isinstance(node, (exp.Table, exp.Subquery)) and node.args.get("alias") is not None:
            name = node.args["alias"].this
            if name is not None and name.name in aliases:
                node.args["alias"].set("this", exp.to_identifier(aliases[name.name], quoted=True))
    return tree


def _read_measure(measure: Measure, aliases: dict[str, str]) -> Asked:
    """The measure without the conditions that its own CASE or FILTER states, and these."""
    tree = None if measure.tree is None else rename_tables(measure.tree, aliases)
    conditions: list[exp.Expr] = []
    while (part := _read_filter(tree, measure)) is not None:
        conditions += list_conditions(part[0])
        tree = part[1]
    if _counts_records(tree, measure):
        measure, tree = Measure(statistic="records"), None
    bare = replace(measure, tree=tree)
    facts = _list_facts(bare, without=("tree",))
    text = " ".join([spell(tree) if tree is not None else "*", *(f"{k}={v}" for k, v in facts.items())])
    return Asked(measure=bare, text=text, conditions=tuple(conditions))


def _list_shape(shape: Shape) -> dict[str, str]:
    """What was derived of rows, as `_list_facts` lists facts."""
    told = {name: getattr(shape, name) for name in ("private", "joined", "multiplied", "individuals")}
    return {"tables": str(shape.tables), **{name: str(value) for name, value in told.items() if value}}


def _list_facts(record: DataclassInstance, *, without: tuple[str, ...]) -> dict[str, str]:
    """The fields of a record that are not as usual: a new one changes nothing where it says nothing."""
    return {
        each.name: str(getattr(record, each.name))
        for each in fields(record)
        if each.name not in without and getattr(record, each.name) != each.default
    }


def _read_filter(tree: exp.Expr | None, measure: Measure) -> tuple[exp.Expr, exp.Expr] | None:
    """The condition and the value of `CASE WHEN condition THEN value END`; also ELSE 0 of a sum from 0."""
    tree = None if tree is None else tree.unnest()
    if not isinstance(tree, exp.Case) or tree.this is not None or len(tree.args["ifs"]) != 1:
        return None
    default = tree.args.get("default")
    adds_nothing = measure.statistic == "sum" and measure.centre == 0
    zero = isinstance(default, exp.Literal) and default.is_number and float(default.this) == 0
    if default is not None and not isinstance(default, exp.Null) and not (zero and adds_nothing):
        return None
    (branch,) = tree.args["ifs"]
    return branch.this, branch.args["true"]


def _counts_records(tree: exp.Expr | None, measure: Measure) -> bool:
    """Whether a measure adds 1 for every record that its conditions leave."""
    if not isinstance(tree, exp.Literal) or measure.labels is not None:
        return False
    if measure.statistic == "present":
        return bool(tree.is_number or not measure.is_number)
    one = tree.is_number and float(tree.this) == 1
    whole = measure.grid == 1 and measure.centre == 0
    return (
        one
        and whole
        and measure.statistic == "sum"
        and measure.low in (0, 1)
        and measure.high == measure.low + 1
    )


def _describe_choice(plan: QueryPlan, aliases: dict[str, str]) -> str:
    """What decides which of an individual's records are kept: columns read, or for a join all that is read.

    Two plans of one choice and one relation keep the same records.
    """
    relation: Relation = plan.relation
    keys = [spell(rename_tables(key.tree, aliases)) for key in plan.keys]
    measures = [noise.measure for noise in plan.noises]
    grouped = keys if plan.keys and plan.max_groups < plan.unit.max_records else []
    if relation.joined:
        # Joined rows are put in the order of what is added up of them, which bounds and steps decide too.
        read = keys + [
            f"{spell(rename_tables(each.tree, aliases))} {_list_facts(each, without=('tree', 'labels'))}"
            for each in measures
            if each.tree is not None
        ]
    else:
        trees = [relation.tree, *(key.tree for key in plan.keys), *(each.tree for each in measures)]
        names = {
            column.name.lower() for tree in trees if tree is not None for column in tree.find_all(exp.Column)
        }
        read = sorted(names - {UNIT})
    return digest({"read": read, "groups": grouped, "max_groups": plan.max_groups if grouped else None})
