"""The published experiment of the reusable holdout, beside a plain holdout, on the same invented rows.

    .venv/bin/python benchmarks/holdout.py                                        five seeds
    .venv/bin/python benchmarks/holdout.py --seeds 12 --picture docs/images/holdout.svg

Rows have 5000 features and a label of -1 or 1. An analyst asks for the correlation of each feature with the
label, keeps the features on which training rows and holdout agree, takes those with the largest correlation
in training, lets them vote, and asks how often the vote is right. With no signal at all every true answer is
one half; with weak signals, 20 features have a mean of 6 / sqrt(rows) times the label.

The gap is the reported accuracy minus that on fresh rows. Guards: "practical" has the constants of
`plan_holdout`, threshold 4 / sqrt(rows) for statistics in [0, 1]; "published" has that threshold in units of
a correlation and of an accuracy, with correlations in [-3, 3], so that threshold and noise are a sixth.
"""

import argparse
import math
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

from sfumato.holdout import HoldoutPlan, ReusableHoldout, plan_holdout

SIZES = (*range(25, 501, 25),)
CHOSEN = 300
WIDTH = 6
GUARDS = ("plain", "practical", "published")
BUDGET = 1000


def invent(rows, features, signals, generator):
    """(X, y): standard normal features, of which the first `signals` lean towards the label."""
    y = np.where(generator.random(rows) < 0.5, -1, 1).astype(np.float32)
    X = np.empty((rows, features), np.float32, order="F")
    for column in X.T:
        column[:] = generator.standard_normal(rows, dtype=np.float32)
    X[:, :signals] += (6 / math.sqrt(rows)) * y[:, None]
    return X, y


def correlate(X, y, feature):
    """Per row, the product of a feature and the label, cut off at 3 and mapped to [0, 1]."""
    return np.clip(X[:, feature] * y, -WIDTH / 2, WIDTH / 2) / WIDTH + 0.5


def vote_right(X, y, weights):
    return (X @ weights > 0) == (y > 0)


class Plain:
    """A holdout that answers exactly."""

    def __init__(self, holdout):
        self.holdout = holdout

    def correlation(self, feature):
        return WIDTH * (float(correlate(*self.holdout, feature).mean()) - 0.5)

    def accuracy(self, weights):
        return float(vote_right(*self.holdout, weights).mean())

    def used(self):
        return 0


class Guarded:
    """The same questions to a guard; accuracies may be asked in units of 1 / `shrink`."""

    def __init__(self, train, holdout, plan, shrink):
        self.guard = ReusableHoldout(train, holdout, plan=plan)
        self.shrink = shrink

    def correlation(self, feature):
        return WIDTH * (self.guard.query(lambda X, y: correlate(X, y, feature)) - 0.5)

    def accuracy(self, weights):
        def ask(X, y):
            return (vote_right(X, y, weights) - 0.5) / self.shrink + 0.5

        return self.shrink * (self.guard.query(ask) - 0.5) + 0.5

    def used(self):
        return self.guard.plan.budget - self.guard.budget_left


def make_plan(kind, rows, questions):
    if kind == "practical":
        return plan_holdout(rows, questions=questions, budget=BUDGET)
    sigma = Fraction(1 / (WIDTH * math.sqrt(rows)))
    return HoldoutPlan(rows=rows, questions=questions, budget=BUDGET, threshold=4 * sigma, sigma=sigma)


def analyse(kind, train, holdout, fresh):
    """{size: (training, reported, fresh) accuracy}, and how many answers came from the holdout."""
    rows, features = train[0].shape
    if kind == "plain":
        asked = Plain(holdout)
    else:
        plan = make_plan(kind, rows, features + len(SIZES))
        asked = Guarded(train, holdout, plan, WIDTH if kind == "published" else 1)
    ours = np.array([WIDTH * (float(correlate(*train, j).mean()) - 0.5) for j in range(features)])
    theirs = np.array([asked.correlation(j) for j in range(features)])
    least = 1 / math.sqrt(rows)
    agree = (abs(ours) >= least) & (abs(theirs) >= least) & ((ours > 0) == (theirs > 0))
    order = np.argsort(-np.where(agree, abs(ours), 0), kind="stable")
    found = {}
    for size in SIZES:
        weights = np.zeros(features, np.float32)
        best = order[:size][agree[order[:size]]]
        weights[best] = np.sign(ours[best])
        found[size] = (
            float(vote_right(*train, weights).mean()),
            asked.accuracy(weights),
            float(vote_right(*fresh, weights).mean()),
        )
    return found, asked.used()


def run(signals, seeds, rows, features):
    """{guard: array of seeds x sizes x (training, reported, fresh)}; prints a line per seed and guard."""
    results = {kind: [] for kind in GUARDS}
    for seed in range(seeds):
        generator = np.random.default_rng([seed, signals])
        train, holdout, fresh = (invent(rows, features, signals, generator) for _ in range(3))
        for kind in GUARDS:
            start = time.perf_counter()
            found, used = analyse(kind, train, holdout, fresh)
            results[kind].append([found[size] for size in SIZES])
            trained, reported, true = found[CHOSEN]
            seconds = time.perf_counter() - start
            print(
                f"{signals:>8}{seed:>6}  {kind:10}{trained:>9.3f}{reported:>10.3f}{true:>8.3f}"
                f"{reported - true:>+9.4f}{used:>8}{seconds:>9.1f}",
                flush=True,
            )
    return {kind: np.array(values) for kind, values in results.items()}


class Panel:
    """One plot of the picture: accuracy against the number of features."""

    def __init__(self, parts, left, top, title):
        self.parts, self.left, self.top = parts, left, top
        for level in (0.5, 0.6, 0.7):
            y = self.y(level)
            parts.append(f'<path d="M{left} {y:.1f}h280" class="grid"/>')
            parts.append(
                f'<text x="{left - 8}" y="{y + 4:.1f}" class="soft" text-anchor="end">{level}</text>'
            )
        for size in (100, 300, 500):
            x, y = self.x(size), top + 178
            parts.append(f'<text x="{x:.1f}" y="{y}" class="soft" text-anchor="middle">{size}</text>')
        parts.append(f'<text x="{left}" y="{top - 12}" class="head">{title}</text>')

    def x(self, size):
        return self.left + 280 * size / SIZES[-1]

    def y(self, level):
        return self.top + 160 * (0.75 - level) / 0.29

    def line(self, values, style):
        """The mean of the seeds as a line, and one standard deviation around it as a band."""
        mean, spread = values.mean(axis=0), values.std(axis=0)
        up = [f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(SIZES, mean + spread, strict=True)]
        down = [f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(SIZES, mean - spread, strict=True)]
        through = [f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in zip(SIZES, mean, strict=True)]
        self.parts.append(f'<polygon points="{" ".join(up + down[::-1])}" class="band {style}"/>')
        self.parts.append(f'<polyline points="{" ".join(through)}" class="line {style}"/>')


def draw(results, path, rows, seeds):
    """Nothing; writes the picture, which follows the light or dark scheme of its reader."""
    told = "Accuracy in training, as reported and on fresh rows, for a plain holdout and for a guarded one"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 560" width="720" role="img" '
        f'aria-label="{told}" font-family="sans-serif" font-size="13">',
        f"<title>{told}</title>",
        "<style>.paper{fill:#fbfaf6}.head,.key{fill:#22302f}.head{font-size:15px}.soft{fill:#5d6b69}"
        ".grid{stroke:#c9c7bd;fill:none}.line{fill:none;stroke-width:2.4}.band{stroke:none;fill-opacity:.18}"
        ".line.a{stroke:#8a8f8c;stroke-dasharray:6 4}.band.a{fill:#8a8f8c}"
        ".line.b{stroke:#b5483a}.band.b{fill:#b5483a}"
        ".line.c{stroke:#2f6f8f}.band.c{fill:#2f6f8f}"
        "@media(prefers-color-scheme:dark){.paper{fill:#1b2221}.head,.key{fill:#e6e9e4}.soft{fill:#a4b0ad}"
        ".grid{stroke:#3c4745}.line.a{stroke:#9aa39f}.line.b{stroke:#e58a78}.band.b{fill:#e58a78}"
        ".line.c{stroke:#7fbbd8}.band.c{fill:#7fbbd8}}</style>",
        '<rect width="720" height="560" rx="8" class="paper"/>',
    ]
    for row, (signals, told) in enumerate(((0, "no signal"), (20, "20 weak signals"))):
        for column, (kind, name) in enumerate((("plain", "plain holdout"), ("practical", "guarded holdout"))):
            panel = Panel(parts, 56 + 344 * column, 50 + 236 * row, f"{name}, {told}")
            for index, style in ((0, "a"), (2, "c"), (1, "b")):
                panel.line(results[signals][kind][:, :, index], style)
    for place, (style, words) in enumerate(
        (("a", "training rows"), ("b", "reported by the holdout"), ("c", "fresh rows (the truth)"))
    ):
        x = 56 + 200 * place
        parts.append(f'<path d="M{x} 512h34" class="line {style}"/>')
        parts.append(f'<text x="{x + 42}" y="516" class="key">{words}</text>')
    parts.append(
        f'<text x="56" y="542" class="soft">accuracy against the number of features that vote; {rows} rows, '
        f"mean and standard deviation of {seeds} seeds</text>"
    )
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--features", type=int, default=5000)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    print(f"{options.rows} rows, {options.features} features, {CHOSEN} of them vote")
    print(f"{'signals':>8}{'seed':>6}  {'guard':10}{'training':>9}{'reported':>10}{'fresh':>8}", end="")
    print(f"{'gap':>9}{'used':>8}{'seconds':>9}")
    results = {signals: run(signals, options.seeds, options.rows, options.features) for signals in (0, 20)}
    place = SIZES.index(CHOSEN)
    print("\nmean gap over the seeds, +- its standard error (bar: at most 0.012 when guarded)")
    for signals, by_guard in results.items():
        for kind, values in by_guard.items():
            gaps = values[:, place, 1] - values[:, place, 2]
            error = gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
            print(f"{signals:>8} signals  {kind:10}{gaps.mean():>+9.4f} +- {error:.4f}")
    if options.picture:
        draw(results, options.picture, options.rows, options.seeds)


if __name__ == "__main__":
    main()
