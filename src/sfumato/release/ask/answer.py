"""A released model opened for questions, and its answers: sums over cells, with intervals from measurements.

Everything in a release is public, so no question costs anything, and no project file or ledger is looked at.
An answer is what the model expects. Its interval comes from the measurements alone, where they tell all that
the answer needs; nothing is known about the error of the model itself. It is the interval of the noise in an
unbiased estimate, stretched to hold the model's answer, which is usually the better guess.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sfumato.core.errors import RecipeError, ReleaseError, UnsupportedQuery, VerificationFailed, refuse
from sfumato.core.exact import parse_exact, parse_positive
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.measurement import Request
from sfumato.inference.conditional import Conditional
from sfumato.inference.evidence import Cells
from sfumato.inference.files import unpack_models
from sfumato.inference.model import draw_codes
from sfumato.recipes.base import MOST_ANSWERS
from sfumato.recipes.files import RECIPES
from sfumato.recipes.shared.repair import draw_obeying, turn_seed
from sfumato.recipes.shared.rows import build_rows
from sfumato.release.ask.question import MEASUREMENTS, Measured, keep_cells, read_fields, read_question
from sfumato.release.ask.regression import regress
from sfumato.release.folder import OpenedRelease, failing_closed, open_folder
from sfumato.sql.bands import find_edge
from sfumato.sql.check import refuse_deep
from sfumato.sql.finish import Answer, sort_rows
from sfumato.sql.plan import MISS, normal_width
from sfumato.sql.statement import read_statement
from sfumato.tables.arrays import label_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sfumato.core.facts.table import Table
    from sfumato.inference.model import Model
    from sfumato.release.ask.question import ReleaseQuestion
    from sfumato.release.ask.regression import Regression
    from sfumato.sql.statement import Statement

    _Numbers = NDArray[np.float64]
    from sfumato.release.ask.question import Field, Output, Source

    _Codes = NDArray[np.int64]


class Groups:
    """The cells that a question keeps, parted by its keys.

    `expected` are the model's counts of the cells of its columns, flat. With `population` intervals are about
    the population that the records are drawn from.
    """

    def __init__(
        self,
        question: ReleaseQuestion,
        sizes: Mapping[str, int],
        expected: _Numbers,
        sources: list[Source],
        *,
        population: bool = False,
    ) -> None:
        shape = tuple(sizes[name] for name in question.columns)
        kept = np.flatnonzero(np.broadcast_to(keep_cells(question, sizes), shape))
        places = np.unravel_index(kept, shape) if shape else ()
        self._question, self._sizes, self._kept = question, sizes, kept
        self._codes = dict(zip(question.columns, places, strict=True))
        self._expected = expected[kept]
        groups = np.zeros(kept.size, np.int64)
        spans = [len(key.distinct) for key in question.keys]
        for key, span in zip(question.keys, spans, strict=True):
            groups = groups * span + self._place(key)
        # Without keys there is one group, even of no cell; with them, those that have a cell.
        present = np.unique(groups) if question.keys else np.zeros(1, np.int64)
        self._inverse = np.searchsorted(present, groups)
        self.rows = present.size
        self._keys: dict[Field, _Codes] = {}
        for key, span in reversed(list(zip(question.keys, spans, strict=True))):
            present, self._keys[key] = np.divmod(present, span)
        cells = Cells(columns=question.columns, codes=self._codes, groups=self._inverse, rows=self.rows)
        self._sums = [Sums(source, cells, sizes, self._expected, population=population) for source in sources]

    def values(self, output: Output) -> _Numbers:
        """Return an output per group; a key by the place of its label."""
        if output.kind == "key" and output.field is not None:
            return self._keys[output.field].astype(np.float64)
        count = self._sum(self._expected)
        if output.kind == "count":
            return count
        lows, highs = self._weights(output)
        total = self._sum(self._expected * (lows + highs) / 2)
        if output.kind == "sum":
            return total
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def interval(self, output: Output) -> tuple[_Numbers, _Numbers]:
        """Return the ends that hold the exact value with 95 %, and the model's value in any case."""
        low, high = np.full((2, self.rows), np.nan)
        for sums in self._sums:
            missing = np.isnan(low)
            if missing.any():
                found = sums.interval(output, *self._weights(output))
                low, high = (np.where(missing, new, old) for new, old in zip(found, (low, high), strict=True))
        if output.kind == "average":
            # Also where no cell is left.
            least, most = output.range
            low, high = np.maximum(low, least), np.minimum(high, most)
        # A group without a record has no average, but its interval stands.
        values = np.where(np.isnan(low), np.nan, self.values(output))
        return np.fmin(low, values), np.fmax(high, values)

    def _weights(self, output: Output) -> tuple[_Numbers, _Numbers]:
        """Return the least and the largest that a record of each cell adds to an output."""
        if output.condition is not None:
            shape = tuple(self._sizes[name] for name in self._question.columns)
            mask = np.broadcast_to(keep_cells(self._question, self._sizes, output.condition), shape)
            ones = mask.reshape(-1)[self._kept].astype(np.float64)
            return ones, ones
        if output.field is None:
            ones = np.ones(self._kept.size)
            return ones, ones
        assert output.field.ends is not None
        codes = self._codes[output.field.column]
        lows, highs = (np.array([float(pair[end]) for pair in output.field.ends])[codes] for end in (0, 1))
        return lows, highs

    def _sum(self, values: _Numbers) -> _Numbers:
        return np.bincount(self._inverse, weights=values, minlength=self.rows).astype(np.float64)

    def _place(self, key: Field) -> _Codes:
        places = {label: place for place, label in enumerate(key.distinct)}
        return np.array([places[label] for label in key.labels], np.int64)[self._codes[key.column]]


class Sums:
    """Sums over groups of cells as one source knows them.

    Where values are joined in the source, cells are joined, too. A group that has a part of such a cell has
    no interval.
    """

    def __init__(
        self, source: Source, cells: Cells, sizes: Mapping[str, int], expected: _Numbers, *, population: bool
    ) -> None:
        self._source, self._population, self._rows = source, population, cells.rows
        self._broken = np.zeros(cells.rows, np.bool_)
        columns = cells.columns
        if source.maps:
            cells = self._join(cells, sizes)
        else:
            self._fold = np.arange(cells.groups.size)
        self._cells = cells
        self._expected = np.bincount(self._fold, weights=expected, minlength=cells.groups.size)
        shape = source.shape(columns, sizes)
        flat = np.ravel_multi_index([cells.codes[name] for name in columns], shape) if columns else 0
        self._noisy = np.broadcast_to(source.evidence.expect(columns)[flat], cells.groups.shape)

    def _join(self, cells: Cells, sizes: Mapping[str, int]) -> Cells:
        """Return cells of joined values that `cells` are parts of; groups with a part of one are broken."""
        maps, columns = self._source.maps, cells.columns
        shape = self._source.shape(columns, sizes)
        codes = [maps[name][cells.codes[name]] if name in maps else cells.codes[name] for name in columns]
        present, self._fold = np.unique(np.ravel_multi_index(codes, shape), return_inverse=True)
        joined = dict(zip(columns, np.unravel_index(present, shape), strict=True))
        groups = np.full(present.size, cells.rows, np.int64)
        np.minimum.at(groups, self._fold, cells.groups)
        members = np.ones(present.size, np.int64)
        for name in maps.keys() & joined.keys():
            members = members * np.bincount(maps[name])[joined[name]]
        divided = np.bincount(self._fold, minlength=present.size) != members
        divided[self._fold[cells.groups != groups[self._fold]]] = True
        self._broken[cells.groups[divided[self._fold]]] = True
        return Cells(columns=columns, codes=joined, groups=groups, rows=cells.rows)

    def interval(self, output: Output, lows: _Numbers, highs: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the ends that hold the exact value of an output with 95 %, whatever the model says of it.

        `lows` and `highs` are the least and the largest that a record of a cell can add.
        """
        low_weights, high_weights = (np.full(self._cells.groups.size, start) for start in (np.inf, -np.inf))
        np.minimum.at(low_weights, self._fold, lows)
        np.maximum.at(high_weights, self._fold, highs)
        if output.kind == "average":
            low, high = self._enclose_average(low_weights, high_weights)
        elif output.field is None and not self._source.has_laplace and not self._population:
            # A number of records is never below zero, which is known beforehand.
            count, deviation = self._estimate(low_weights)
            low, high = enclose_positive(count, deviation)
            step = self._source.step / 2
            low, high = np.maximum(low - step, 0), high + step
        else:
            # The sum is at least that of the exact counts with low weights, at most that with high ones.
            (below, under), (above, over) = self._estimate(low_weights), self._estimate(high_weights)
            low = below - self._source.width * under - self._half_step(low_weights)
            high = above + self._source.width * over + self._half_step(high_weights)
            low = np.maximum(low, 0) if output.field is None else low
        # One end alone, as where the least that records can add is zero, would pass for both.
        unknown = self._broken | np.isnan(low) | np.isnan(high)
        return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)

    def _estimate(self, weights: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the weighted sum of every group, and the standard deviation of its noise."""
        return self._sum(weights * self._noisy), np.sqrt(np.maximum(self._spread(weights, weights), 0))

    def _spread(self, one: _Numbers, other: _Numbers) -> _Numbers:
        """The covariance of two weighted sums: of their noise, and of drawing records from a population."""
        noise = self._source.evidence.covariance(self._cells, one, other)
        return noise + self._sum(one * other * self._expected) if self._population else noise

    def _half_step(self, weights: _Numbers) -> _Numbers:
        """Return half of what one step of the noise, which is discrete, can move a sum by."""
        largest = np.zeros(self._rows)
        np.maximum.at(largest, self._cells.groups, np.abs(weights))
        return largest * self._source.step / 2

    def _enclose_average(self, lows: _Numbers, highs: _Numbers) -> tuple[_Numbers, _Numbers]:
        if not lows.size:
            return np.full(self._rows, -np.inf), np.full(self._rows, np.inf)
        least, most = float(lows.min()), float(highs.max())
        # Weights are taken from the middle: squares of far numbers would lose what they differ by.
        centre, half = (least + most) / 2, (most - least) / 2
        smallest, largest = np.full(self._rows, half), np.full(self._rows, -half)
        np.minimum.at(smallest, self._cells.groups, lows - centre)
        np.maximum.at(largest, self._cells.groups, highs - centre)
        low = self._least_average(lows - centre, smallest, largest)
        high = -self._least_average(centre - highs, -largest, -smallest)
        return centre + low, centre + high

    def _least_average(self, weights: _Numbers, low: _Numbers, high: _Numbers) -> _Numbers:
        """Return the least average from `low` to `high`, per group, that the evidence does not speak against.

        An average r is spoken against if the evidence for the sum of (weight - r) is further above zero
        than noise reaches. The exact average is not, with 97.5 % (Fieller's argument), also where few
        records or none are behind it.
        """
        ones = np.ones_like(weights)
        weighted, count = self._sum(weights * self._noisy), self._sum(self._noisy)
        squares, crossed, counts = (
            self._spread(*pair) for pair in ((weights, weights), (weights, ones), (ones, ones))
        )
        step = self._source.step / 2 * (high - low)

        def speaks_above(ratio: _Numbers) -> NDArray[np.bool_]:
            spread = np.maximum(squares - 2 * ratio * crossed + ratio**2 * counts, 0)
            above: NDArray[np.bool_] = weighted - ratio * count > self._source.width * np.sqrt(spread) + step
            return above

        found = find_edge(high, low, speaks_above)
        return np.where(np.isnan(squares + counts), np.nan, found)

    def _sum(self, values: _Numbers) -> _Numbers:
        return np.bincount(self._cells.groups, weights=values, minlength=self._rows).astype(np.float64)


def enclose_positive(values: _Numbers, deviations: _Numbers) -> tuple[_Numbers, _Numbers]:
    """95 % intervals of what is at least zero, from unbiased normal estimates of it.

    They hold it with 95 % whatever it is, and are never empty (Feldman and Cousins 1998, "Unified approach to
    the classical statistical analysis of small signals"). Far from zero they are the usual ones; cut at zero,
    the usual ones would hold nothing with 97.5 %.

    >>> low, high = enclose_positive(np.array([-1.0, 1.0, 30.0]), np.array([1.0, 1.0, 3.0]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0, 0.0, 24.12], [1.1, 2.96, 35.88])
    """
    centres, firsts, lasts = find_acceptance()
    width = normal_width(MISS)
    scaled = np.divide(values, deviations, out=np.zeros_like(values), where=deviations > 0)
    low = np.where(scaled >= lasts[-1], scaled - width, np.interp(scaled, lasts, centres))
    high = np.where(scaled >= 0, scaled + width, np.interp(scaled, firsts[1:], centres[1:]))
    return low * deviations, high * deviations


@cache
def find_acceptance() -> tuple[_Numbers, _Numbers, _Numbers]:
    """For true values from zero up to the width of noise, the least and the largest estimate that fit them.

    What fits a true value are estimates with 95 % of its probability, those first whose likelihood is
    largest beside that of the best value for them, which is zero for estimates below. Where the least one
    is below zero, both ratios are equal at first = last - last^2 / (2 centre).
    """
    normal, width = NormalDist(), normal_width(MISS)
    centres = np.concatenate(([0.0], np.geomspace(1e-3, 1.0, 400) * width))
    firsts, lasts = [-np.inf], [normal.inv_cdf(1 - MISS)]
    for centre in centres[1:].tolist():
        low, high = centre, centre + width
        for _ in range(60):
            last = (low + high) / 2
            first = last - last**2 / (2 * centre)
            inside = normal.cdf(last - centre) - normal.cdf(first - centre)
            low, high = (last, high) if inside < 1 - MISS else (low, last)
        firsts.append(last - last**2 / (2 * centre))
        lasts.append(last)
    return centres, np.array(firsts), np.array(lasts)


_MOST_CELLS = 2**22  # of a question, whose array lies in memory
_MODEL = "model.parquet"


def open_model(folder: Path | str, *, epsilon: object = None) -> ReleasedModel:
    """Return the model of the release in `folder`; `epsilon` chooses if it holds several.

    The files are compared with the digests in the certificate; that they follow from the measurements is
    for `verify` to say.
    """
    return read_model(open_folder(folder, load=(_MODEL, MEASUREMENTS)), epsilon=epsilon)


def read_model(opened: OpenedRelease, *, epsilon: object = None) -> ReleasedModel:
    """Return the model of an opened release, whose files were compared with its certificate."""
    if _MODEL not in opened.files:
        raise ReleaseError(f"the release {opened.name!r} has no {_MODEL}; its recipe makes no model")
    table = opened.described()
    with failing_closed("the release cannot be asked"):
        models = unpack_models(opened.files[_MODEL])
        requests, queries = _read_requests(table, opened.certificate["measurements"])
        recipe = opened.plan().recipe if opened.certificate["plan"]["recipe"]["recipe"] in RECIPES else None
    key, model = _choose(models, epsilon)
    released = ReleasedModel(
        table=table,
        model=model,
        epsilon=key,
        requests=requests,
        queries=queries,
        packed=opened.files[MEASUREMENTS],
        released={key: getattr(recipe, key, None) for key in ("within_bins", "types", "seed")},
    )
    if not released.columns:
        raise VerificationFailed(f"{_MODEL} is of no column that the certificate describes")
    return released


def can_ask(statement: Statement, table: Table, columns: tuple[str, ...]) -> bool:
    """Return whether a model of all `columns` of `table` answers a statement; looks at public facts alone."""
    sizes = {name: table.column(name).size for name in columns}
    try:
        question = read_question(statement, read_fields(table, sizes))
        keep_cells(question, sizes)
    except (RecipeError, UnsupportedQuery):
        return False
    return math.prod(sizes[name] for name in question.columns) <= _MOST_CELLS


class ReleasedModel:
    """The model of a release, which answers plain SELECTs at no cost."""

    def __init__(
        self,
        *,
        table: Table,
        model: Model,
        epsilon: str,
        requests: tuple[Request, ...],
        packed: bytes,
        queries: Mapping[str, Mapping[str, Any]] | None = None,
        released: Mapping[str, Any] | None = None,
    ) -> None:
        """Return `requests` are the marginals that were measured, `packed` is the file with the noisy values.

        `queries` has, by the name of a request, the record of queries where sums of cells were asked.
        `released` is what the recipe says of the form of its rows.
        """
        self.table = table
        self.model = model
        self.epsilon = epsilon
        self.fields = read_fields(table, model.domain)
        self._released = released or {}
        self.measured = Measured(table, model.domain, requests, queries or {}, packed)

    def __repr__(self) -> str:
        return f"ReleasedModel({self.table.name} at epsilon {self.epsilon}: {', '.join(self.columns)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that may be asked about."""
        return tuple(field.name for field in self.fields.named.values())

    @refuse_deep
    def sql(self, text: str, *, population: bool = False) -> Answer:
        """Return the answer to a plain SELECT about the model, with intervals where measurements give them.

        They hold with 95 % what the records say; with `population`, what the population says that the
        records are a random sample of, one record of each individual.
        """
        return self.answer(read_statement(text), population=population)

    def answer(self, statement: Statement, *, population: bool = False) -> Answer:
        """Return the answer to a statement that was read already."""
        try:
            question = read_question(statement, self.fields)
            cells = self.model.domain.cells(question.columns)
            if cells > _MOST_CELLS:
                raise refuse(f"the columns have {cells:,} combinations, more than {_MOST_CELLS:,}; use fewer")
            if population:
                self._refuse_no_sample()
            expected = self.model.marginal(question.columns).reshape(-1)
            sources = self.measured.find_sources(question.columns)
            groups = Groups(question, self.model.domain, expected, sources, population=population)
            table, known = _respond(question, groups)
        except RecipeError as error:
            raise UnsupportedQuery(str(error)) from None
        names = [output.name for output in question.outputs if output.kind != "key"]
        asked = " x ".join(question.columns)
        missing = [name for name in names if known[name] < groups.rows]
        notes: tuple[str, ...] = ()
        if missing and not any(known.values()):
            notes = (
                f"no interval: no measurement counts {asked} cell by cell; the answer rests on what the "
                "model takes to be independent",
            )
        elif missing:
            notes = (
                f"no interval for some of {', '.join(missing)}: {asked} was measured with rare values "
                "joined, or not as far as they need; there the answer rests on what the model takes to be "
                "independent",
            )
        none = "no measurement counts these columns cell by cell, so there is no interval"
        best = [each for each in sources if each.evidence.knows(question.columns)] or sources
        scales = {name: best[0].describe(question.columns) if known[name] else none for name in names}
        return Answer(table=table, public=True, scales=scales, notes=notes)

    def regress(
        self, target: str, inputs: Sequence[str], *, family: Regression = "linear", population: bool = False
    ) -> Answer:
        """Return the coefficients of a regression, with intervals where measurements tell all that they need.

        `target` is a column of numbers or a condition such as "job = 'yes'", which counts 1 where it holds.
        Numbers in bins are taken for the middle of their bin. Of a column of labels the first is left out,
        and coefficients are differences from it. `family` is "linear" (least squares) or "logistic".
        Intervals hold with 95 % the coefficients of the same regression on the records; with `population`,
        those on the population that the records are a random sample of.
        """
        if population:
            self._refuse_no_sample()
        found = regress(
            self.model,
            self.fields,
            target,
            inputs,
            family=family,
            find_sources=self.measured.find_sources,
            population=population,
        )
        table = pa.table(
            {
                "term": pa.array(found.terms, pa.string()),
                "coefficient": _to_nullable(found.values),
                "coefficient_low": _to_nullable(found.low),
                "coefficient_high": _to_nullable(found.high),
            }
        )
        return Answer(table=table, public=True, scales={"coefficient": found.scale}, notes=found.notes)

    def sample(
        self, where: str | None = None, *, rows: int | None = None, seed: int | None = None
    ) -> pa.Table:
        """Return synthetic rows that fit the condition `where`, drawn from the model given that it holds.

        By default as many as the model expects. The same seed gives the same rows. What measurements do not
        bear out is said in a warning.
        """
        table, notes = self.draw_rows(where, rows=rows, seed=seed)
        for each in notes:
            warnings.warn(each, stacklevel=2)
        return table

    @refuse_deep
    def draw_rows(
        self, where: str | None = None, *, rows: int | None = None, seed: int | None = None
    ) -> tuple[pa.Table, tuple[str, ...]]:
        """Return rows as `sample` does, with what is to be said of them."""
        text = f'SELECT COUNT(*) AS expected FROM "{self.table.name}"'
        statement = read_statement(text if where is None else f"{text} WHERE {where}")
        question = read_question(statement, self.fields)
        if question.keys or question.order or question.limit is not None:
            raise refuse("rows are asked for with a condition alone, such as age >= 65 AND region = 'north'")
        domain, known = self.model.domain, question.columns
        if domain.cells(known) > _MOST_CELLS:
            raise refuse(f"the columns of the condition have more than {_MOST_CELLS:,} combinations")
        kept = np.broadcast_to(keep_cells(question, domain), domain.shape(known))
        shares = np.where(kept.reshape(-1), self.model.marginal(known).reshape(-1), 0.0)
        expected = float(shares.sum())
        count = round(expected) if rows is None else rows
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_ANSWERS:
            raise RecipeError(f"the number of rows must be a whole number from 0 to {MOST_ANSWERS:,}")
        if expected <= 0:
            raise RecipeError("the model knows no row that fits the condition; ask for less")
        drawing = Conditional(self.model, known)
        first = self._released.get("seed") or 0 if seed is None else seed

        def draw(number: int, turn: int) -> dict[str, NDArray[np.int64]]:
            if not known:
                return self.model.sample(number, seed=turn_seed(first, turn))
            cells = draw_codes(shares, number, seed=first, turn=turn)
            given = dict(zip(known, np.unravel_index(cells, domain.shape(known)), strict=True))
            rest = drawing.sample(given, seed=turn_seed(first, turn))
            return {name: given[name] if name in given else rest[name] for name in domain}

        columns = tuple(domain)
        codes = draw_obeying(self.table, columns, draw, rows=count, seed=first)
        public, types = self._released.get("within_bins"), self._released.get("types")
        table = build_rows(self.table, columns, codes, seed=first, public=public, types=types)
        return table, () if where is None else self._tell_evidence(statement)

    def _tell_evidence(self, statement: Statement) -> tuple[str, ...]:
        """Return what measurements say of the records that fit, where that is little or nothing."""
        answer = self.answer(statement)
        ((expected,), (low,)) = (answer.table[name].to_pylist() for name in ("expected", "expected_low"))
        if low is None:
            return answer.notes
        if low > 0:
            return ()
        return (
            f"about {expected:,.0f} records fit the condition, which noise alone explains: the model has "
            "next to no evidence of what they are like",
        )

    def _refuse_no_sample(self) -> None:
        """Raises an error if records cannot be taken for a simple random sample of a population."""
        if self.table.unit.max_records != 1:
            raise RecipeError(
                "an individual may have several records here, so that they are no simple random sample; ask "
                "without population"
            )


def _choose(models: Mapping[str, Model], epsilon: object) -> tuple[str, Model]:
    known = ", ".join(models)
    if epsilon is None:
        if len(models) > 1:
            raise RecipeError(f"the release holds models at epsilon {known}; choose one with --epsilon")
        return next(iter(models.items()))
    chosen = parse_positive(epsilon, name="epsilon")
    for key, model in models.items():
        try:
            if parse_exact(key, name="epsilon") == chosen:
                return key, model
        except RecipeError:
            continue
    raise RecipeError(f"the release holds no model at that epsilon; it has {known}")


def _read_requests(table: Table, asks: list[Any]) -> tuple[tuple[Request, ...], dict[str, Mapping[str, Any]]]:
    """Return the requests for marginals, and by their names the records of queries where sums were asked."""
    requests: list[Request] = []
    queries: dict[str, Mapping[str, Any]] = {}
    for ask in asks:
        if not isinstance(ask, dict):
            raise TypeError("a measurement is not described")
        if "columns" not in ask:
            continue
        columns = tuple(ask["columns"])
        counted: Marginal | ClippedMarginal = Marginal(columns)
        if "contribution_norm" in ask:
            counted = ClippedMarginal(columns, parse_positive(ask["contribution_norm"], name="norm"))
        request = Request(
            name=str(ask["name"]),
            counted=counted,
            noise=ask["kind"],
            scale=parse_positive(ask["scale"], name="scale"),
        )
        table.cells(request.columns)
        requests.append(request)
        if "queries" in ask:
            queries[request.name] = dict(ask["queries"])
    return tuple(requests), queries


def _respond(question: ReleaseQuestion, groups: Groups) -> tuple[pa.Table, dict[str, int]]:
    """Return the answer to `question`, and for how many groups each of its outputs has an interval."""
    order: list[tuple[_Numbers, bool]] = [
        (groups.values(output), descending) for output, descending in question.order
    ]
    rows = sort_rows(np.arange(groups.rows), order, limit=question.limit, offset=question.offset)
    columns: dict[str, pa.Array] = {}
    known: dict[str, int] = {}
    for output in question.outputs:
        values = groups.values(output)[rows]
        if output.kind == "key" and output.field is not None:
            columns[output.name] = label_array(values.astype(np.int32), output.field.distinct)
            continue
        columns[output.name] = _to_nullable(values)
        interval = groups.interval(output)
        known[output.name] = int(np.count_nonzero(~np.isnan(interval[0])))
        for suffix, ends in zip(("_low", "_high"), interval, strict=True):
            columns[output.name + suffix] = _to_nullable(ends[rows])
    return pa.table(columns), known


def _to_nullable(values: _Numbers) -> pa.Array:
    """Return the values with NULL for what is not known."""
    return pa.array(values.tolist(), pa.float64(), from_pandas=True)
