"""What is asked of a table, all of it in one record that is checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

from sfumato.anonymity.check import Wanted
from sfumato.anonymity.hierarchy import Hierarchy
from sfumato.anonymity.hierarchy_files import read_hierarchies
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from sfumato.anonymity.check import Distance


Method = Literal["local", "cuts", "strict", "relaxed", "lattice", "microaggregate"]
METHODS: tuple[str, ...] = get_args(Method)

_PLAIN = ("relaxed", "microaggregate", "strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked wish. `wanted` is what the written table must have, by whoever measures it."""

    quasi_identifiers: tuple[str, ...]
    k: int
    sensitive: tuple[str, ...]
    keep: tuple[str, ...]
    identifiers: tuple[str, ...]
    individual: str | None
    hierarchies: Mapping[str, Hierarchy]
    method: Method
    wanted: Wanted
    weights: Mapping[str, float] = field(default_factory=dict)
    max_suppressed: float = 0.0
    max_suppressed_cells: float = 1.0

    @property
    def released(self) -> tuple[str, ...]:
        """The columns that come out."""
        return (*self.quasi_identifiers, *self.sensitive, *self.keep)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self.released if self.individual is None else (*self.released, self.individual)


def make_plan(
    *,
    quasi_identifiers: Sequence[str] | str,
    k: int,
    sensitive: Sequence[str] | str | None = None,
    keep: Sequence[str] | str = (),
    identifiers: Sequence[str] | str = (),
    individual: str | None = None,
    hierarchies: Mapping[str, Hierarchy] | Path | str | None = None,
    method: str = "local",
    l: int | None = None,  # noqa: E741 - the field's word
    entropy_l: float | None = None,
    recursive: tuple[float, int] | None = None,
    t: float | None = None,
    distance: Distance | Mapping[str, Distance] = "equal",
    delta: float | None = None,
    k_map: bool = False,
    weights: Mapping[str, float] | None = None,
    max_suppressed: float = 0.0,
    max_suppressed_cells: float = 1.0,
) -> Plan:
    """The plan that these wishes make, or an error that says which of them cannot be.

    >>> make_plan(quasi_identifiers=["age", "sex"], k=5, sensitive="ill", l=2).wanted.l
    2
    """
    plan = Plan(
        quasi_identifiers=_names(quasi_identifiers),
        k=k,
        sensitive=_names(sensitive or ()),
        keep=_names(keep),
        identifiers=_names(identifiers),
        individual=individual,
        hierarchies=_read_hierarchies(hierarchies, _names(quasi_identifiers)),
        method=_choose(method),
        # Against a register it is the register's people that a class must hold, not the table's.
        wanted=Wanted(
            k=1 if k_map else k,
            l=l,
            entropy_l=entropy_l,
            recursive=recursive,
            t=t,
            distance=distance,
            delta=delta,
            k_map=k if k_map else None,
        ),
        weights=dict(weights or {}),
        max_suppressed=max_suppressed,
        max_suppressed_cells=max_suppressed_cells,
    )
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    if not plan.quasi_identifiers:
        _refuse("name at least one quasi-identifier")
    parts = {
        "a quasi-identifier": plan.quasi_identifiers,
        "sensitive": plan.sensitive,
        "kept": plan.keep,
        "an identifier": plan.identifiers,
    }
    seen: dict[str, str] = {}
    for part, names in parts.items():
        for name in names:
            if seen.setdefault(name, part) != part or names.count(name) > 1:
                _refuse(f"column {name!r} is {seen[name]} and {part}; give it one part")
    if plan.individual is not None and plan.individual in plan.released:
        _refuse(
            f"column {plan.individual!r} names individuals and is {seen[plan.individual]} too; identifiers "
            "are never released"
        )
    unknown = [name for name in (*plan.hierarchies, *plan.weights) if name not in plan.quasi_identifiers]
    if unknown:
        _refuse(f"a hierarchy or a weight is given for {unknown[0]!r}, which is not a quasi-identifier")
    for name, weight in plan.weights.items():
        if not (isinstance(weight, (int, float)) and math.isfinite(weight) and weight > 0):
            _refuse(f"the weight of column {name!r} must be a number above 0")
    for name in ("max_suppressed", "max_suppressed_cells"):
        share = getattr(plan, name)
        if not (isinstance(share, (int, float)) and 0 <= share <= 1):
            _refuse(f"{name} must be a share from 0 to 1")
    if plan.wanted.needs_sensitive and not plan.sensitive:
        _refuse("diversity and closeness are about sensitive columns; name one")
    needs_models = plan.wanted.needs_sensitive or plan.individual is not None
    if needs_models and plan.method in _PLAIN:
        _refuse(f"method {plan.method!r} knows k only; use 'local', 'cuts' or 'lattice' for other models")
    if plan.wanted.k_map is not None and plan.method not in ("local", "cuts", "strict"):
        _refuse(f"method {plan.method!r} knows no register; use 'local', 'cuts' or 'strict'")
    if plan.wanted.k_map is not None and plan.individual is not None:
        _refuse("k counts either the people of a register or distinct individuals; leave one out")
    if plan.method == "lattice":
        bare = [name for name in plan.quasi_identifiers if name not in plan.hierarchies]
        if bare:
            _refuse(f"method 'lattice' needs a hierarchy for every quasi-identifier; {bare[0]!r} has none")
    if plan.method == "microaggregate" and plan.hierarchies:
        _refuse("method 'microaggregate' gives means and most frequent values; leave the hierarchies out")


def _names(given: Sequence[Any] | str) -> tuple[str, ...]:
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        _refuse("columns are given by their names")
    return names


def _choose(method: str) -> Any:  # noqa: ANN401 - a Literal, once checked
    if method not in METHODS:
        _refuse(f"no method {method!r}; known: {', '.join(METHODS)}")
    return method


def _read_hierarchies(
    given: Mapping[str, Hierarchy] | Path | str | None, names: tuple[str, ...]
) -> Mapping[str, Hierarchy]:
    if given is None:
        return {}
    if isinstance(given, (str, Path)):
        # A file may serve for several tables, so that it may tell of columns that are not used here.
        return {name: each for name, each in read_hierarchies(Path(given)).items() if name in names}
    for name, hierarchy in given.items():
        each: object = hierarchy
        if not isinstance(each, Hierarchy):
            _refuse(f"the hierarchy of column {name!r} is none; build one, such as Intervals or Prefixes")
    return dict(given)


def _refuse(message: str) -> NoReturn:
    raise AnonymityError(message)
