"""Writes docs/reference.md: each name that a package exports, how it is called and what it does."""

import importlib
import inspect
import pkgutil
import re
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import sfumato

PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Reference

Every name that a package exports, made from the docstrings by `make reference`. Which of them stay from
version to version, and for how long, says [CONTRIBUTING.md](../CONTRIBUTING.md#names-that-stay).
"""


class Verbatim(str):
    """Text that a signature shows without quotes."""

    __repr__ = str.__str__


def unquote(annotation: object) -> object:
    """An annotation as it is written."""
    return Verbatim(annotation) if isinstance(annotation, str) else annotation


def first_line(thing: object) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def signature(thing: object) -> str:
    """How a function, a method or a class is called, if it has a signature of its own."""
    if isinstance(thing, type) and issubclass(thing, (BaseException, Fraction, str, int)):
        return ""
    try:
        found = inspect.signature(thing)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    named = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    given = [each.replace(annotation=unquote(each.annotation)) for each in named]
    result = found.empty if isinstance(thing, type) else unquote(found.return_annotation)
    text = str(found.replace(parameters=given, return_annotation=result))
    return re.sub(r"<[^<>]*(<[^<>]*>)?[^<>]*>", "...", text)  # defaults that are objects


def describe(name: str, thing: object) -> list[str]:
    """The lines of one name; those of a class with its methods."""
    if not callable(thing) or getattr(thing, "__module__", "").startswith("typing"):
        return [f"- `{name}`" + (f": {first_line(thing)}" if isinstance(thing, ModuleType) else "")]
    lines = [f"- `{name}{signature(thing)}`: {first_line(thing)}".removesuffix(": ")]
    proof = Path("proofs") / f"{getattr(thing, 'kind', '')}.md"
    if (PAGE.parent / proof).is_file():
        lines[0] += f" ([{proof.stem}]({proof}))"
    for key, method in vars(thing).items() if isinstance(thing, type) else ():
        plain = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
        if not key.startswith("_") and (inspect.isfunction(plain) or isinstance(method, property)):
            call = "" if isinstance(method, property) else signature(plain)
            lines.append(f"  - `.{key}{call}`: {first_line(plain)}")
    return lines


def build() -> str:
    """The whole page."""
    rooms = [each.name for each in pkgutil.iter_modules(sfumato.__path__, "sfumato.") if each.ispkg]
    rooms = sorted([*rooms, "sfumato.metrics.contests"])
    parts = [HEAD]
    for room in map(importlib.import_module, ("sfumato", *rooms)):
        names = getattr(room, "__all__", ())
        lines = [line for name in names for line in describe(name, getattr(room, name))]
        if lines and room.__name__ != "sfumato.cli":
            parts.append(f"## {room.__name__}\n\n{first_line(room)}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(build(), encoding="utf-8")
