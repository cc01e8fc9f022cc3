"""Draws docs/images/rooms.svg from the imports of the code: a box for each room, an arrow for what it needs.

The floors are the layers of the contracts in pyproject.toml, those of the core within its wall. Arrows that
follow from others are left out: a room that needs the facts through the questions is drawn with one arrow, to
the questions. So are two kinds that the contracts except: the kit of pages in report/, which any room may use
to show itself, and the official scores that the curator prices.
"""

import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
KIT = ("sfumato.report.pages", "sfumato.report.plots")  # what draws, which any room may call
WIDTH, HEIGHT, GAP, FLOOR, MARGIN = 104, 30, 14, 74, 20


def read_floors() -> list[list[str]]:
    """The rooms of every layer, from the top down."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    house, core = (each["layers"] for each in contracts if each["type"] == "layers")
    place = house.index("core")
    layers = [layer.split("|") for layer in house]
    outside = [[_spell(room.strip()) for room in layer] for layer in layers]
    within = [[room.strip() for room in layer.split("|")] for layer in core]
    return [*outside[:place], *within, *outside[place + 1 :]]


def find_needs() -> dict[str, set[str]]:
    """For each room those that it imports."""
    graph = grimp.build_graph("sfumato", cache_dir=None)
    needs: dict[str, set[str]] = {}
    for module in graph.modules - {"sfumato"}:
        room = _room(module)
        imported = graph.find_modules_directly_imported_by(module)
        found = {_room(each) for each in imported if "." in each and not each.startswith(KIT)} - {"core"}
        found -= {"metrics"} if room == "curator" else set()
        if room != "core":
            needs[room] = needs.get(room, set()) | found - {room}
    return needs


def _room(module: str) -> str:
    """The room of a module: of the core, the room within."""
    parts = module.split(".")
    if parts[1] == "core":
        return parts[2] if len(parts) > 2 else "core"
    return _spell(parts[1])


def _spell(room: str) -> str:
    """A room of one file has its ending, so that it is not taken for one of the core."""
    return f"{room}.py" if (ROOT / "src" / "sfumato" / f"{room}.py").exists() else room


def reduce_needs(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """The needs that do not follow from others."""

    def reach(room: str) -> set[str]:
        return needs[room].union(*(reach(each) for each in needs[room]))

    return {room: found - set().union(*(reach(each) for each in found)) for room, found in needs.items()}


def draw_rooms() -> str:
    """The picture."""
    floors, needs = read_floors(), reduce_needs(find_needs())
    width = 2 * MARGIN + max(map(len, floors)) * (WIDTH + GAP) - GAP
    places = {}
    for level, rooms in enumerate(floors):
        left = (width - len(rooms) * (WIDTH + GAP) + GAP) / 2
        places |= {room: (left + at * (WIDTH + GAP), MARGIN + level * FLOOR) for at, room in enumerate(rooms)}
    lines = []
    for room in sorted(needs):
        for other in sorted(needs[room]):
            (left, top), (under, below) = places[room], places[other]
            start, stop = f"{left + WIDTH / 2:g} {top + HEIGHT}", f"{under + WIDTH / 2:g} {below}"
            lines.append(f'<path d="M{start} L{stop}" marker-end="url(#tip)"/>')
    top, below = (places[name][1] for name in ("door", "errors"))
    wall = (
        f'<rect x="{MARGIN / 2:g}" y="{top - GAP:g}" width="{width - MARGIN}" rx="8" '
        f'height="{below - top + HEIGHT + 2 * GAP:g}" class="core"/>'
        f'<text x="{2 * MARGIN + 8}" y="{top + 4:g}">core</text>'
    )
    boxes = [
        f'<rect x="{left:g}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="5" class="{_kind(room)}"/>'
        f'<text x="{left + WIDTH / 2:g}" y="{top + 20}">{escape(room)}</text>'
        for room, (left, top) in places.items()
    ]
    height = 2 * MARGIN + (len(floors) - 1) * FLOOR + HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="Which room of the code needs which">\n'
        "<style>text{font:13px sans-serif;text-anchor:middle;fill:#222}path{stroke:#999;fill:none}"
        "rect{fill:#f4f1ea;stroke:#8a8170}.private{fill:#f6d5c9;stroke:#b2533a}.door{fill:#f3e3a8;stroke:#9a7b10}.core{fill:#eef3ee;stroke:#4a7a4a}"
        "</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" style="fill:#999;stroke:none"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" style="fill:#fff;stroke:none"/>\n'
        + "\n".join([wall, *lines, *boxes])
        + "\n</svg>\n"
    )


def _kind(room: str) -> str:
    if room == "door":
        return "door"
    private = {"anonymity", "audit", "engine", "metrics", "servers", "statements"}
    return "private" if room in private else "public"


if __name__ == "__main__":
    PICTURE.write_text(draw_rooms(), encoding="utf-8")
