"""The note that an unfinished release leaves in its folder: how it was begun, from public facts alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sfumato.errors import ReleaseError, SfumatoError
from sfumato.exact import parse_delta
from sfumato.recipes import Plan, Recipe, parse_epsilons, parse_recipe
from sfumato.release.certificate import pack_json
from sfumato.release.folder import RESUME, check_folder
from sfumato.schema.reading import MOST_TEXT, read_regular
from sfumato.tables import write_file, write_folder

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "sfumato resume 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A release that was begun: its recipe, its privacy parameters and the name of its project file."""

    recipe: Recipe
    epsilons: tuple[Fraction, ...]
    delta: Fraction
    project: str


def write_note(out: Path, plan: Plan, *, project: str, force: bool) -> None:
    """Leaves the note in `out`; a release that is there and is to be replaced stays until then."""
    check_folder(out, force=force)
    note = {
        "format": FORMAT,
        "recipe": plan.recipe.to_record(),
        "epsilons": [str(epsilon) for epsilon in plan.epsilons],
        "delta": str(plan.delta),
        "project": project,
    }
    if out.exists():
        write_file(out / RESUME, pack_json(note), force=True)
    else:
        write_folder(out, {RESUME: pack_json(note)})


def read_note(out: Path) -> Begun:
    """What the note in `out` says, or an error that says what to do instead."""
    try:
        note: dict[str, Any] = json.loads(read_regular(out / RESUME, most=MOST_TEXT))
    except FileNotFoundError:
        raise ReleaseError(
            f"{out.name!r} has no {RESUME}, so no unfinished release is kept there; run `sfumato release "
            "RECIPE --out FOLDER`: what was answered before on the unchanged table is free"
        ) from None
    except OSError as error:
        raise ReleaseError(f"{out.name!r}: {RESUME} cannot be read ({type(error).__name__})") from None
    except (ValueError, RecursionError):
        raise ReleaseError(f"{out.name!r}: {RESUME} is not valid JSON; run the same release again") from None
    try:
        begun = Begun(
            recipe=parse_recipe(note["recipe"]).recipe,
            epsilons=parse_epsilons(note["epsilons"]),
            delta=parse_delta(note["delta"]),
            project=str(note["project"]),
        )
        known = note["format"] == FORMAT
    except (SfumatoError, KeyError, TypeError, ValueError, AttributeError):
        known = False
    if not known:
        raise ReleaseError(
            f"{out.name!r}: {RESUME} is not a note of this version; run the same release again"
        )
    return begun
