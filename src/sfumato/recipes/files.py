"""Recipe files: a recipe and its privacy parameters, in TOML."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import parse_delta
from sfumato.core.facts.column import refuse_unknown_keys
from sfumato.core.facts.project import read_toml
from sfumato.recipes.base import FILE_KEYS, Recipe, parse_epsilons

_OTHERS = ("base", "files")

# Every other module of this room is a recipe: cell_counts.py holds CellCounts, in files "cell-counts". Each
# is a dataclass whose fields are the keys of its recipe file, imported when it is asked for. Here stand the
# names of their classes, or a class itself.
RECIPES: dict[str, str | Callable[..., Recipe]] = {
    name.replace("_", "-"): name.title().replace("_", "")
    for _, name, is_room in pkgutil.iter_modules([str(Path(__file__).parent)])
    if not is_room and name not in _OTHERS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFile:
    """A recipe with the epsilons and the delta its file asks for."""

    recipe: Recipe
    epsilons: tuple[Fraction, ...] | None
    delta: Fraction


def read_recipe(path: Path | str) -> RecipeFile:
    """Return the recipe that the file at `path` describes."""
    path = Path(path)
    try:
        return parse_recipe(read_toml(path, what="recipe"), folder=path.parent)
    except SchemaError as error:
        raise RecipeError(str(error)) from None
    except RecipeError as error:
        raise RecipeError(f"{path.name}: {error}") from None


def find_recipe(kind: str) -> Callable[..., Recipe]:
    """Return the recipe that files call `kind`."""
    found = RECIPES[kind]
    if not isinstance(found, str):
        return found
    module = import_module(f"sfumato.recipes.{kind.replace('-', '_')}")
    recipe: Callable[..., Recipe] = getattr(module, found)
    return recipe


def parse_record(record: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a record of it describes, of this version or an earlier one."""
    former = getattr(find_recipe(record["recipe"]), "former", {}) if record.get("recipe") in RECIPES else {}
    return parse_recipe({**former, **record}).recipe


def parse_recipe(document: Mapping[str, Any], *, folder: Path | None = None) -> RecipeFile:
    """Return the recipe that a parsed document describes; a public file it names is looked for in `folder`.

    >>> parse_recipe({"recipe": "cell-counts", "table": "t", "by": ["a"], "epsilon": 1}).recipe.table
    't'
    """
    keys = dict(document)
    kind = keys.pop("recipe", None)
    if not isinstance(kind, str) or kind not in RECIPES:
        raise RecipeError(f"recipe must be one of {', '.join(sorted(RECIPES))}, got {kind!r}")
    if not isinstance(keys.get("table"), str):
        raise RecipeError(f"{kind}: table must name a table of the project file")
    epsilons = parse_epsilons(keys.pop("epsilon")) if "epsilon" in keys else None
    delta = parse_delta(keys.pop("delta", 0))
    for key in FILE_KEYS:
        if folder is not None and isinstance(keys.get(key), str):
            keys[key] = str(folder / keys[key])
    known = tuple(each.name for each in fields(find_recipe(kind)))  # type: ignore[arg-type]
    refuse_unknown_keys(keys, known, where=kind)
    try:
        recipe = find_recipe(kind)(**keys)
    except TypeError as error:
        raise RecipeError(f"{kind}: {str(error).split(') ', 1)[-1].replace('__init__() ', '')}") from None
    return RecipeFile(recipe=recipe, epsilons=epsilons, delta=delta)
