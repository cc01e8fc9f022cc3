"""Regressions on a released model: coefficients, and intervals where measurements tell all that they need.

The coefficients are those of the model, so of the rows that are drawn from it. With the score of a record at
these coefficients, the sum of scores over the records is zero for the model and tells for the records how far
their own coefficients are: a step of Newton's. That sum is a weighted sum of counts, so that measurements
give an unbiased estimate of it with known noise. Scores of least squares are sums over pairs of columns: all
pairs must have been measured. Logistic ones need the joint counts of all inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.release.ask.question import keep_cells, read_question
from sfumato.sql.plan import MISS, normal_width
from sfumato.sql.statement import read_statement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.inference.domain import Columns
    from sfumato.inference.model import Model
    from sfumato.release.ask.question import Field, Fields, Source

    _Numbers = NDArray[np.float64]

Regression = Literal["linear", "logistic"]

_MOST_CELLS = 2**20  # of a pair of inputs
_MOST_TERMS = 200  # coefficients, whose covariance is a square of them
_STEPS = 50  # of Newton's method
_CLOSE = 1e-10  # relative size of a Newton step that is the last
_REFINEMENTS = 3  # of a step whose curvature changes on the way
_NEAR = 0.5  # in logits; the curvature of a chance changes by a few percent over so much
_SINGULAR = 1e-10  # beside 1, the curvature of a direction that the inputs do not tell
_CONSTANT = "(constant)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coefficients:
    """Coefficients by term, with 95 % intervals or NaN, and what should be known of them."""

    terms: tuple[str, ...]
    values: _Numbers
    low: _Numbers
    high: _Numbers
    scale: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fitted:
    """Coefficients of the model, the scores of a record times the inverse curvature, by columns.

    `sampling` is the covariance that drawing the records from a population adds. Where the curvature changes
    with the coefficients, `inputs` are mean products of inputs, and `rescore` gives the scores at others.
    """

    values: _Numbers
    scores: dict[Columns, _Numbers]
    sampling: _Numbers
    inputs: _Numbers | None = None
    rescore: Callable[[_Numbers], dict[Columns, _Numbers]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Design:
    """What each code of a column of the model stands for: a row of features, and in `target` the target.

    `binned` are the names of columns whose numbers are known by their bins. Records count whose target is
    `present`: 1 of a number or a condition, 0 of a missing or other value.
    """

    terms: tuple[str, ...]
    features: Mapping[str, _Numbers]
    places: Mapping[str, list[int]]
    target: tuple[str, _Numbers]
    present: _Numbers
    binned: tuple[str, ...]

    @property
    def columns(self) -> Columns:
        """Return the columns of the inputs and that of the target."""
        return (*self.features, self.target[0])

    def count(self, model: Model, columns: Columns) -> _Numbers:
        """Return the model's counts of inputs, and perhaps of the target last, among records that count."""
        target = self.target[0]
        if self.present.all():
            return model.marginal(columns)
        if target in columns:
            return model.marginal(columns) * self.present
        return np.asarray(model.marginal((*columns, target)) @ self.present)


def regress(
    model: Model,
    fields: Fields,
    target: str,
    inputs: Sequence[str],
    *,
    family: Regression,
    find_sources: Callable[[Columns], Sequence[Source]],
    population: bool,
) -> Coefficients:
    """Return the regression of `target`, a column of numbers or a condition, on the columns `inputs`.

    `find_sources` gives the evidence about columns.
    """
    if family not in ("linear", "logistic"):
        raise RecipeError(f"a regression is linear or logistic, not {family!r}")
    design = _build_design(fields, target, inputs)
    if family == "logistic" and not set(np.unique(design.target[1])) <= {0.0, 1.0}:
        raise RecipeError(
            "a logistic regression needs a target that is 0 or 1; name a condition, such as \"job = 'yes'\""
        )
    fitted = (_fit_linear if family == "linear" else _fit_logistic)(model, design)
    low, high = np.full((2, fitted.values.size), np.nan)
    scale, note = "no measurement tells all that is needed, so there is no interval", ""
    for source in find_sources(design.columns):
        found, note = _enclose(fitted, source, population=population)
        if found is not None:
            low, high = found
            noise = "laplace" if source.has_laplace else "gaussian"
            scale = f"intervals from {len(source.requests)} measurements: {noise} noise"
            break
    binned = ", ".join(design.binned)
    notes = [f"numbers of {binned} are taken for the middle of their bins"] if binned else []
    if not design.present.all():
        notes.append(f"records without a number in {target} are left out")
    notes += [f"no interval: {note}"] if note else []
    return Coefficients(
        terms=design.terms, values=fitted.values, low=low, high=high, scale=scale, notes=tuple(notes)
    )


def _enclose(
    fitted: _Fitted, source: Source, *, population: bool
) -> tuple[tuple[_Numbers, _Numbers] | None, str]:
    """Return the ends of the intervals of all coefficients; or None, and why there are none."""
    scores, centre, curved = fitted.scores, fitted.values, fitted.rescore is not None
    for _ in range(_REFINEMENTS if curved else 1):
        folded = _fold(scores, source)
        if folded is None:
            return None, (
                f"values of {', '.join(source.maps)} that are too rare to be told from noise were measured "
                "together; use columns with fewer values"
            )
        steps, noise, missing = source.evidence.estimate(folded)
        if missing:
            return None, (
                f"no measurement counts {' x '.join(missing[0])} cell by cell; the coefficients rest on what "
                "the model takes to be independent"
            )
        if fitted.inputs is not None and not _is_near(steps, noise, fitted.inputs):
            return None, "the noise is too large beside what the inputs tell of the target"
        centre = centre + steps
        if fitted.rescore is not None:
            scores = fitted.rescore(centre)
    variances = np.diag(noise) + (np.diag(fitted.sampling) if population else 0.0)
    width = math.log(1 / MISS) / math.sqrt(2) if source.has_laplace else normal_width(MISS)
    reach = width * np.sqrt(np.maximum(variances, 0.0))
    return (np.minimum(fitted.values, centre - reach), np.maximum(fitted.values, centre + reach)), ""


def _build_design(fields: Fields, target: str, inputs: Sequence[str]) -> _Design:
    column, numbers, present = _read_target(fields, target)
    if isinstance(inputs, str) or not inputs or len(set(inputs)) != len(inputs):
        raise RecipeError("inputs must list columns of the release, none twice")
    terms = [_CONSTANT]
    features: dict[str, _Numbers] = {}
    places: dict[str, list[int]] = {}
    for name in inputs:
        field = _find_field(fields, name)
        if field.column == column:
            raise RecipeError(f"{name!r} is what the target is made of; leave it out of the inputs")
        labels, values = _list_features(field)
        known = places.setdefault(field.column, [])
        known += range(len(terms), len(terms) + len(labels))
        terms += labels
        before = features.get(field.column)
        features[field.column] = values if before is None else np.column_stack([before, values])
    if len(terms) > _MOST_TERMS:
        raise RecipeError(
            f"the inputs have {len(terms):,} terms, more than {_MOST_TERMS}; use fewer or coarser"
        )
    named = [fields.named.get(name.lower()) for name in (target, *inputs)]
    binned = tuple(
        field.name
        for field in named
        if field is not None and any(low < high for low, high in field.numbers or ())
    )
    return _Design(
        terms=tuple(terms),
        features=features,
        places=places,
        target=(column, numbers),
        present=present,
        binned=binned,
    )


def _list_features(field: Field) -> tuple[list[str], _Numbers]:
    """Return the terms of a column: the number itself, or one for every label but the first.

    Missing and other values beside numbers are labels.
    """
    if field.numbers is not None:
        size = len(field.numbers)
        names = [field.name, *(f"{field.name} = {label}" for label in field.labels[size:])]
        return names, np.column_stack([_middles(field), np.eye(len(field.labels))[:, size:]])
    _, *others = field.distinct
    ones = np.array([[label == other for other in others] for label in field.labels], np.float64)
    return [f"{field.name} = {label}" for label in others], ones.reshape(len(field.labels), len(others))


def _read_target(fields: Fields, target: str) -> tuple[str, _Numbers, _Numbers]:
    """Return the column of a target, its number for every code, and 1 where it has one."""
    if target.lower() in fields.named:
        field = fields.named[target.lower()]
        if field.numbers is None:
            raise RecipeError(
                f"the target {field.name!r} holds no numbers; name a condition, such as "
                f"\"{field.name} = '{field.distinct[0]}'\""
            )
        known = np.arange(len(field.labels)) < len(field.numbers)
        return field.column, _middles(field), known.astype(np.float64)
    text = f'SELECT COUNT(*) FROM "{fields.alias}" WHERE {target}'
    question = read_question(read_statement(text), fields)
    if len(question.columns) != 1:
        raise RecipeError("the target must be a column of numbers, or a condition on one column")
    (column,) = question.columns
    sizes = {each.column: len(each.labels) for each in fields.named.values()}
    return column, keep_cells(question, sizes).astype(np.float64), np.ones(sizes[column])


def _find_field(fields: Fields, name: str) -> Field:
    if name.lower() not in fields.named:
        known = ", ".join(field.name for field in fields.named.values())
        raise RecipeError(f"the model has no column {name!r} (it has: {known})")
    return fields.named[name.lower()]


def _middles(field: Field) -> _Numbers:
    """The number of every code, in a bin its middle; 0 of missing and other values."""
    assert field.numbers is not None
    middles = [float(low + high) / 2 for low, high in field.numbers]
    return np.array(middles + [0.0] * (len(field.labels) - len(middles)))


def _fit_linear(model: Model, design: _Design) -> _Fitted:
    """Return least squares from the model's counts of pairs."""
    size = len(design.terms)
    column, numbers = design.target
    matrix, vector = np.zeros((size, size)), np.zeros(size)
    counts = design.count(model, (column,))
    matrix[0, 0] = total = float(counts.sum())
    vector[0] = counts @ numbers
    squares = float(counts @ numbers**2)
    for name, features in design.features.items():
        own = design.places[name]
        single = design.count(model, (name,))
        matrix[0, own] = matrix[own, 0] = single @ features
        matrix[np.ix_(own, own)] = features.T @ (single[:, None] * features)
        vector[own] = features.T @ (design.count(model, (name, column)) @ numbers)
    for one, other in combinations(design.features, 2):
        block = design.features[one].T @ design.count(model, (one, other)) @ design.features[other]
        matrix[np.ix_(design.places[one], design.places[other])] = block
        matrix[np.ix_(design.places[other], design.places[one])] = block.T
    inverse = invert_curvature(matrix)
    values = inverse @ vector
    residual = max(squares - float(values @ vector), 0.0) / max(total - size, 1.0)
    scores = _linear_scores(design, values, inverse)
    return _Fitted(values=values, scores=scores, sampling=residual * inverse)


def _linear_scores(design: _Design, values: _Numbers, inverse: _Numbers) -> dict[Columns, _Numbers]:
    """Return the scores of records, times the inverse, as sums over pairs of columns.

    A score is (sum of u) (sum of e) over columns: u is what a column adds to the inputs, times the inverse,
    and e what it adds to the residual.
    """
    column, numbers = design.target
    inputs = {name: each @ inverse[:, design.places[name]].T for name, each in design.features.items()}
    errors = {name: -each @ values[design.places[name]] for name, each in design.features.items()}
    errors[column] = numbers
    inputs[column] = np.zeros((numbers.size, values.size))
    weights: dict[Columns, _Numbers] = {
        (one, other): inputs[one][:, None, :] * errors[other][None, :, None]
        + inputs[other][None, :, :] * errors[one][:, None, None]
        for one, other in combinations(design.columns, 2)
    }
    for name in design.columns:
        weights[name,] = (inputs[name] + inverse[0]) * errors[name][:, None] - values[0] * inputs[name]
    weights[()] = -values[0] * inverse[0]
    if design.present.all():
        return weights
    counted: dict[Columns, _Numbers] = {}
    for names, each in weights.items():
        wide = each if column in names else each[..., None, :]
        names = (*(name for name in names if name != column), column)
        counted[names] = counted.get(names, 0.0) + wide * design.present[:, None]
    return counted


def _fit_logistic(model: Model, design: _Design) -> _Fitted:
    """Newton's method on the joint counts of all columns."""
    columns = design.columns
    cells = model.domain.cells(columns)
    if cells > _MOST_CELLS:
        raise RecipeError(
            f"the columns of a logistic regression have {cells:,} combinations, more than "
            f'{_MOST_CELLS:,}; use fewer inputs, or family "linear"'
        )
    counts = design.count(model, columns)
    shape = counts.shape
    features = np.zeros((*shape, len(design.terms)))
    features[..., 0] = 1.0
    for axis, name in enumerate(design.features):
        around = [-1 if at == axis else 1 for at in range(len(shape))]
        for place, feature in zip(design.places[name], design.features[name].T, strict=True):
            features[..., place] = feature.reshape(around)
    rows, weights = features.reshape(-1, len(design.terms)), counts.reshape(-1)
    target = np.broadcast_to(design.target[1], shape).reshape(-1)

    def predict(values: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the chances of all cells, and the inverse of the curvature."""
        chances = 1 / (1 + np.exp(-np.clip(rows @ values, -500, 500)))
        return chances, invert_curvature((rows * (weights * chances * (1 - chances))[:, None]).T @ rows)

    def score(values: _Numbers) -> dict[Columns, _Numbers]:
        chances, inverse = predict(values)
        errors = ((rows @ inverse) * (target - chances)[:, None]).reshape(*shape, -1)
        return {columns: errors * design.present[:, None]}

    values = np.zeros(len(design.terms))
    for _ in range(_STEPS):
        chances, inverse = predict(values)
        step = inverse @ (rows.T @ (weights * (target - chances)))
        values = values + step
        if np.abs(step).max() <= _CLOSE * (1 + np.abs(values).max()):
            break
    else:
        raise RecipeError("the logistic regression has no finite coefficients: some input decides the target")
    return _Fitted(
        values=values,
        scores=score(values),
        sampling=predict(values)[1],
        inputs=(rows * weights[:, None]).T @ rows / weights.sum(),
        rescore=score,
    )


def _is_near(steps: _Numbers, noise: _Numbers, inputs: _Numbers) -> bool:
    """Whether a step and its noise move the predictions of records so little that it leads to the truth."""
    moved = float(steps @ inputs @ steps) + float((noise * inputs).sum())
    return moved <= _NEAR**2


def invert_curvature(matrix: _Numbers) -> _Numbers:
    """Return the inverse of a curvature, or an error if some inputs follow from others."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    if (scale == 0).any() or np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0] <= _SINGULAR:
        raise RecipeError(
            "some inputs follow from others, or have a label without a record; use fewer of them"
        )
    inverse: _Numbers = np.linalg.inv(matrix / np.outer(scale, scale)) / np.outer(scale, scale)
    return inverse


def _fold(scores: Mapping[Columns, _Numbers], source: Source) -> dict[Columns, _Numbers] | None:
    """The scores for cells in which values are joined; None if values that are joined have different ones."""
    folded = {}
    for columns, given in scores.items():
        result = given
        for axis, name in enumerate(columns):
            if name in source.maps:
                codes = source.maps[name]
                first = np.unique(codes, return_index=True)[1]
                joined = np.take(result, first, axis=axis)
                if not np.allclose(
                    np.take(joined, codes, axis=axis), result, atol=1e-12 * np.abs(result).max()
                ):
                    return None
                result = joined
        folded[columns] = result
    return folded
