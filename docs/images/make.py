"""The pictures of docs/synthesis.md and docs/rows-why.md, made by running what they show.

Run it with the Python of .venv. It writes four SVG files beside itself and prints the figures that the page
quotes. Everything is simulated from a fixed seed; nothing but numpy and sfumato is needed.
"""

from __future__ import annotations

import math
import tomllib
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.inference import Domain, Measurement, Model, Tree, build_tree, estimate, merge_measurements
from sfumato.recipes.shared.granularity import GRID, Blocks, expand_blocks

HERE = Path(__file__).resolve().parent
TAXI = HERE.parents[1] / "examples" / "taxi" / "adaptive-grid.toml"

INK, SOFT, PAPER, LINE = "#22302f", "#5d6b69", "#fbfaf6", "#c9c7bd"
BLUE, GOLD, RED, PALE, BROWN = "#2f6f8f", "#d9a441", "#b5483a", "#dfe8ea", "#8f6210"

Columns = tuple[str, ...]


class Picture:
    """An SVG image on paper of its own, so that it reads on a dark page as on a light one."""

    def __init__(self, width: int, height: int, told: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'role="img" aria-label="{told}" font-family="sans-serif" font-size="13">',
            f"<title>{told}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
        ]

    def text(
        self, x: float, y: float, words: str, *, color: str = INK, at: str = "start", size: int = 13
    ) -> None:
        """Nothing; writes `words`."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{at}" font-size="{size}">'
            f"{words}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        line: str = "none",
        round_: int = 0,
    ) -> None:
        """Nothing; draws a rectangle."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_}" '
            f'fill="{fill}" stroke="{line}"/>'
        )

    def path(
        self,
        points: list[tuple[float, float]],
        *,
        color: str,
        width: float = 2,
        dash: str = "",
        head: bool = False,
    ) -> None:
        """Nothing; draws a line through `points`, with an arrow's head if asked."""
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="{width}"{dashed}/>'
        )
        if head:
            (x0, y0), (x, y) = points[-2:]
            angle = math.atan2(y - y0, x - x0)
            ends = [
                (x - 9 * math.cos(angle + turn), y - 9 * math.sin(angle + turn)) for turn in (0.45, -0.45)
            ]
            corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in [(x, y), *ends])
            self.parts.append(f'<polygon points="{corners}" fill="{color}"/>')

    def save(self, name: str) -> None:
        """Nothing; writes the file."""
        (HERE / name).write_text("\n".join([*self.parts, "</svg>", ""]), encoding="utf-8")


def draw_flow() -> None:
    """Nothing; from records to rows, and where the noise comes in."""
    picture = Picture(760, 214, "select, measure, fit, draw rows")
    stops = [
        ("select", ["which marginal", "to ask about"], GOLD),
        ("measure", ["exact counts", "plus noise"], GOLD),
        ("fit", ["one model of", "all noisy answers"], BLUE),
        ("rows", ["drawn from", "the model"], BLUE),
    ]
    for place, (name, told, color) in enumerate(stops):
        x = 40 + 178 * place
        picture.box(x, 62, 136, 76, fill=PALE, line=color, round_=8)
        picture.text(x + 68, 84, name, at="middle", size=16)
        for line, words in enumerate(told):
            picture.text(x + 68, 105 + 17 * line, words, at="middle", color=SOFT)
        if place:
            picture.path([(x - 42, 100), (x - 3, 100)], color=INK, head=True)
    picture.path([(464, 138), (464, 170), (108, 170), (108, 141)], color=INK, dash="5 4", head=True)
    picture.text(
        286, 188, "the model says where it is most likely wrong (adaptive, tree)", at="middle", color=SOFT
    )
    picture.text(197, 34, "touch the records: charged before the first", at="middle", color=BROWN)
    picture.path([(40, 44), (354, 44)], color=GOLD)
    picture.text(553, 34, "noisy answers and public facts only: free", at="middle", color=BLUE)
    picture.path([(396, 44), (710, 44)], color=BLUE)
    picture.save("flow.svg")


def draw_grid() -> None:
    """Nothing; a pair of columns after its single columns were measured, and its query matrix."""
    generator = np.random.default_rng(5)
    domain = Domain({"area": 7, "hour": 6})
    sigma = 60.0
    weights = np.outer([40, 22, 14, 9, 1.2, 0.6, 0.4], [30, 24, 12, 2.0, 0.7, 0.4])
    true_counts = generator.poisson(weights / weights.sum() * 6000)
    blocks = Blocks(domain)
    for name, axis in (("area", 1), ("hour", 0)):
        noisy = true_counts.sum(axis=axis) + sigma * generator.normal(size=domain[name])
        blocks.build((name,))
        blocks.flag((name,), noisy >= 5 * sigma)
    columns = ("area", "hour")
    queries = expand_blocks(domain, columns, blocks.build(columns))
    single = blocks.plausible[columns].reshape(7, 6)
    matrix = np.zeros((queries.rows, queries.cells))
    for row in range(queries.rows):
        part = slice(queries.starts[row], queries.starts[row + 1])
        matrix[row, queries.members[part]] = queries.weights[part] / GRID
    norms = np.sqrt((matrix**2).sum(axis=0))
    print(f"grid: {queries.rows} queries over {queries.cells} cells, {int(single.sum())} one by one")
    print(f"grid: column norms from {norms.min():.4f} to {norms.max():.4f}")

    picture = Picture(760, 372, "which cells are measured one by one, and the query matrix")
    picture.text(28, 34, "the marginal area x hour", size=15)
    for row in range(7):
        flagged = bool(blocks.flags["area",][row])
        picture.text(46, 92 + 32 * row, "&#9873;" if flagged else "", color=RED)
        for column in range(6):
            x, y = 66 + 32 * column, 72 + 32 * row
            alone = bool(single[row, column])
            picture.box(x, y, 30, 30, fill=BLUE if alone else GOLD)
            color = PAPER if alone else INK
            picture.text(
                x + 15, y + 20, str(int(true_counts[row, column])), color=color, at="middle", size=11
            )
    for column in range(6):
        picture.text(
            81 + 32 * column, 64, "&#9873;" if blocks.flags["hour",][column] else "", color=RED, at="middle"
        )
    picture.box(66, 312, 14, 14, fill=BLUE)
    picture.text(86, 324, "asked one by one")
    picture.box(66, 334, 14, 14, fill=GOLD)
    picture.text(86, 346, "asked in sums")
    picture.text(222, 324, "&#9873;", color=RED)
    picture.text(238, 324, "flagged")
    left, top, wide = 330, 56, 9.6
    high = min(9.6, 290 / queries.rows)
    picture.text(left, 34, f"its queries: {queries.rows} rows over {queries.cells} cells", size=15)
    picture.box(left, top, wide * queries.cells, high * queries.rows, fill="#ffffff", line=LINE)
    for row, column in zip(*np.nonzero(matrix), strict=True):
        alone = matrix[row, column] == 1
        picture.box(
            left + wide * column, top + high * row, wide - 0.8, high - 0.8, fill=BLUE if alone else GOLD
        )
    picture.text(left, 346, "blue: weight 1; gold: 0.707; every column has norm 1", color=SOFT)
    picture.save("grid.svg")


class Simulation:
    """Rows of five columns that one hidden number joins, three triples of them, and their noisy counts."""

    sizes = {"a": 20, "b": 12, "c": 10, "d": 8, "e": 6}  # noqa: RUF012 - never changed
    outer = (("a", "b", "c"), ("a", "c", "d"), ("a", "d", "e"))
    rows = 100_000

    def __init__(self) -> None:
        generator = np.random.default_rng(7)
        self.domain = Domain(self.sizes)
        hidden = generator.normal(size=self.rows)
        self.codes = {}
        for (name, size), share in zip(self.sizes.items(), (0.9, 0.8, 0.75, 0.7, 0.6), strict=True):
            values = share * hidden + math.sqrt(1 - share**2) * generator.normal(size=self.rows)
            self.codes[name] = np.searchsorted(np.sort(generator.normal(size=size - 1) * 1.1), values)
        parts = {part for each in self.outer for size in (1, 2, 3) for part in combinations(each, size)}
        self.marginals = sorted(parts, key=lambda part: (len(part), part))

    def count(self, columns: Columns) -> NDArray[np.float64]:
        """The exact counts."""
        codes = np.zeros(self.rows, np.int64)
        for name in columns:
            codes = codes * self.sizes[name] + self.codes[name]
        return np.bincount(codes, minlength=self.domain.cells(columns)).astype(np.float64)

    def measure(self, sigma: float) -> list[Measurement]:
        """All marginals with fresh noise."""
        generator = np.random.default_rng(3)
        return [
            Measurement(
                columns=columns,
                values=self.count(columns) + sigma * generator.normal(size=self.domain.cells(columns)),
                sigma=sigma,
            )
            for columns in self.marginals
        ]

    def error(self, model: Model) -> float:
        """The mean L1 distance of the triples from the truth, as a share of the rows."""
        gaps = [np.abs(model.flat_marginal(each) - self.count(each)).sum() / self.rows for each in self.outer]
        return float(np.mean(gaps))

    def expected(self, model: Model, noisy: list[Measurement]) -> float:
        """Half of the number of answers less what was fitted, as the stopping rule has it."""
        answers, fitted = 0, 0.0
        for part in merge_measurements(self.domain, noisy):
            counts = model.flat_marginal(part.columns)
            answers += counts.size
            fitted += float((counts / (counts + part.variance / model.depth)).sum())
        return (answers - fitted) / 2


def draw_stopping() -> None:
    """Nothing; loss, what noise explains and true error along one path of mirror descent."""
    simulation = Simulation()
    looked = (3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 400, 600, 1000)
    for sigma in (1000.0, 400.0, 200.0, 100.0, 50.0, 20.0):
        noisy = simulation.measure(sigma)
        own = estimate(simulation.domain, noisy)
        path = [estimate(simulation.domain, noisy, iterations=each) for each in looked]
        errors = [simulation.error(model) for model in path]
        best = int(np.argmin(errors))
        print(
            f"stopping: sigma {sigma:g}: stops after {own.evaluations} with error "
            f"{simulation.error(own):.3f}; least on the path {errors[best]:.3f} at {looked[best]}; "
            f"at {looked[-1]} {errors[-1]:.3f}"
        )
        if sigma == 400:
            losses = [model.loss for model in path]
            # An evaluation that was tried and not taken is no point of the path.
            taken = [place for place, loss in enumerate(losses) if loss <= min(losses[: place + 1])]
            _draw_path(
                [looked[place] for place in taken],
                [losses[place] for place in taken],
                [simulation.expected(path[place], noisy) for place in taken],
                [errors[place] for place in taken],
                own=own.evaluations,
            )
    answers = sum(simulation.domain.cells(columns) for columns in simulation.marginals)
    print(f"stopping: {len(simulation.marginals)} marginals, {answers:,} answers")


def _draw_path(
    looked: list[int], losses: list[float], expected: list[float], errors: list[float], *, own: int
) -> None:
    picture = Picture(760, 420, "loss, what noise explains, and true error by evaluations")
    left, right = 70, 590

    def across(evaluations: float) -> float:
        return left + (right - left) * math.log(evaluations / 3) / math.log(1000 / 3)

    def draw(values: list[float], top: float, low: float, high: float, color: str, dash: str = "") -> None:
        inside = [
            (across(x), top + 150 * (high - y) / (high - low)) for x, y in zip(looked, values, strict=True)
        ]
        kept = [(x, y) for x, y in inside if y >= top - 1]
        picture.path(kept, color=color, width=2.5, dash=dash)

    frames = (
        (30, 2200.0, 4200.0, (2500, 3000, 3500, 4000), "g"),
        (220, 0.25, 0.75, (0.3, 0.4, 0.5, 0.6, 0.7), ".1f"),
    )
    for top, low, high, marks, kind in frames:
        picture.box(left, top, right - left, 150, fill="#ffffff", line=LINE)
        for mark in marks:
            y = top + 150 * (high - mark) / (high - low)
            picture.path([(left, y), (right, y)], color=LINE, width=0.6)
            picture.text(left - 8, y + 4, format(mark, kind), at="end", color=SOFT, size=11)
    for mark in (3, 10, 30, 100, 300, 1000):
        picture.text(across(mark), 388, str(mark), at="middle", color=SOFT, size=11)
    picture.text((left + right) / 2, 408, "evaluations", at="middle", color=SOFT)
    draw(losses, 30, 2200, 4200, INK)
    draw(expected, 30, 2200, 4200, GOLD, "6 4")
    draw(errors, 220, 0.25, 0.75, RED)
    stop = across(own)
    picture.path([(stop, 30), (stop, 370)], color=BLUE, width=1.5, dash="3 3")
    picture.text(stop + 6, 46, "stops here", color=BLUE)
    picture.text(right + 10, 100, "loss")
    picture.text(right + 10, 118, "what noise explains,", color=BROWN)
    picture.text(right + 10, 134, "(m &#8722; fitted)/2", color=BROWN)
    picture.text(right + 10, 290, "true error", color=RED)
    picture.text(right + 10, 306, "of the triples", color=RED)
    picture.save("stopping.svg")


def draw_tree() -> None:
    """Nothing; the junction tree of the taxi recipe, as it is built from its outer marginals."""
    recipe = tomllib.loads(TAXI.read_text(encoding="utf-8"))
    short = {
        "pickup_community_area": "pickup",
        "dropoff_community_area": "dropoff",
        "company_id": "company",
        "payment_type": "payment",
        "trip_total": "total",
        "trip_seconds": "seconds",
        "trip_miles": "miles",
    }
    outer = [[short.get(name, name) for name in each] for each in recipe["outer"]]
    sizes = {"pickup": 78, "shift": 21, "dropoff": 78, "company": 57, "payment": 9}
    names = dict.fromkeys(name for each in outer for name in each)
    domain = Domain({name: sizes.get(name, 11) for name in names})
    tree = build_tree(domain, [tuple(each) for each in outer])
    print(f"tree: {len(tree.cliques)} cliques, {tree.cells:,} cells, of {math.prod(domain.values()):.3g}")

    picture = Picture(760, 324, "the junction tree of the taxi recipe")
    places = _lay_out(tree)
    for place, parent in enumerate(tree.parents):
        if parent >= 0:
            (x0, y0), (x, y) = places[parent], places[place]
            picture.path([(x0, y0 + 34), (x, y - 12)], color=SOFT, width=1.5)
            extra = [name for name in tree.separators[place] if name not in ("pickup", "shift")]
            middle, words = ((x0 + x) / 2, (y0 + 34 + y - 12) / 2), ", ".join(extra) or "&#8709;"
            picture.box(middle[0] - 20, middle[1] - 9, 40, 18, fill=PAPER)
            picture.text(middle[0], middle[1] + 4, words, at="middle", color=RED)
    for place, clique in enumerate(tree.cliques):
        x, y = places[place]
        own = [name for name in clique if name not in ("pickup", "shift")]
        picture.box(x - 66, y - 12, 132, 46, fill=PALE, line=BLUE, round_=8)
        picture.text(x, y + 7, ", ".join(own), at="middle")
        picture.text(x, y + 25, f"{domain.cells(clique):,} cells", at="middle", color=SOFT, size=11)
    picture.text(24, 28, "Every clique also holds pickup and shift, and so does every edge.", color=SOFT)
    picture.text(24, 48, "On an edge: what the two share beside these.", color=RED)
    picture.save("tree.svg")


def _lay_out(tree: Tree) -> list[tuple[float, float]]:
    """A place for every clique, children side by side below their parent."""
    below: list[list[int]] = [[] for _ in tree.cliques]
    for place, parent in enumerate(tree.parents):
        if parent >= 0:
            below[parent].append(place)

    def width(place: int) -> int:
        return max(1, sum(width(each) for each in below[place]))

    places = [(0.0, 0.0)] * len(tree.cliques)
    unit = 720 / width(0)

    def put(place: int, start: float, depth: int) -> None:
        places[place] = (start + unit * width(place) / 2, 82 + 92 * depth)
        for each in below[place]:
            put(each, start, depth + 1)
            start += unit * width(each)

    put(0, 20, 0)
    return places


if __name__ == "__main__":
    draw_flow()
    draw_grid()
    draw_tree()
    draw_stopping()
