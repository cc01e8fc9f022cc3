"""Views: names for queries, of the project file or of a session, which stand for what they name.

A view is text and no more: what is asked of it is asked of its tables, and costs what that costs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.core.errors import refuse
from sfumato.sql.statement import mask_text

_VIEW = re.compile(r"(create|drop)\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?view\b", re.IGNORECASE)
_MOST_VIEWS = 100


def change_views(text: str, views: dict[str, str], *, taken: Collection[str]) -> str | None:
    """Makes or drops the view of a session that `text` says, and tells so; None of another statement.

    >>> views = {}
    >>> change_views("CREATE TEMP VIEW v AS SELECT * FROM visits", views, taken=["visits"])
    'view v is there until the session ends'
    """
    if not isinstance(text, str) or not re.search(r"\bview\b", text, re.IGNORECASE):
        return None
    text = mask_text(text, quotes=False).strip().rstrip(";")
    if not _VIEW.match(text):
        return None
    tree = _parse(text)
    name = tree.find(exp.Table)
    if name is None or name.args.get("db") or name.name.lower() in {each.lower() for each in taken}:
        raise refuse("a view needs a name that no table and no view of the project file has")
    if isinstance(tree, exp.Drop):
        if views.pop(name.name.lower(), None) is None and not tree.args.get("exists"):
            raise refuse(f"no view {name.name[:80]!r}")
        return f"view {name.name} is gone"
    if len(views) >= _MOST_VIEWS or (name.name.lower() in views and not tree.args.get("replace")):
        raise refuse(f"a view {name.name[:80]!r} that is there already, or one of more than {_MOST_VIEWS}")
    _read_view(name.name.lower(), text)
    views[name.name.lower()] = text
    return f"view {name.name} is there until the session ends"


def add_views(query: exp.Select, views: Mapping[str, str]) -> None:
    """Puts the views that a query names, and those that they name, into its WITH, in place."""
    known = {name.lower(): text for name, text in views.items()}
    made = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    needed: dict[str, exp.CTE] = {}

    def need(tree: exp.Expr, around: tuple[str, ...]) -> None:
        for name in (each.name.lower() for each in tree.find_all(exp.Table) if not each.args.get("db")):
            if name in around:
                raise refuse(f"views that name each other in a circle: {', '.join(around)}")
            if name in known and name not in made and name not in needed:
                cte = _read_view(name, known[name])
                need(cte.this, (*around, name))
                needed[name] = cte

    need(query, ())
    if needed:
        clause = query.args.get("with_")
        query.set("with_", exp.With(expressions=[*needed.values(), *(clause.expressions if clause else [])]))


def _parse(text: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(text, dialect="duckdb")
    except SqlglotError:
        trees = []
    if len(trees) != 1 or trees[0] is None:
        raise refuse("a view is CREATE VIEW name AS SELECT ..., or its SELECT alone in [views]")
    return trees[0]


def _read_view(name: str, text: str) -> exp.CTE:
    """A view as a query of WITH: from its SELECT, or from CREATE VIEW."""
    tree, columns = _parse(text), list[exp.Expr]()
    if isinstance(tree, exp.Create):
        columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
        tree = tree.expression
    if not isinstance(tree, exp.Query) or tree.find(exp.Parameter, exp.Placeholder):
        raise refuse(f"view {name[:80]!r} is no SELECT, or has a parameter")
    tree = tree.unnest()
    if isinstance(tree, exp.Select) and columns:
        if len(columns) != len(tree.expressions):
            raise refuse(f"view {name[:80]!r} names {len(columns)} columns of {len(tree.expressions)}")
        pairs = zip(tree.expressions, columns, strict=True)
        named = [exp.alias_(item.unalias(), column.name, quoted=True) for item, column in pairs]
        tree.set("expressions", named)
    return exp.CTE(this=tree, alias=exp.TableAlias(this=exp.to_identifier(name)))
