"""A released model in use: predictions for new data, and exports. Free: it reads the release alone."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError, ReleaseError, SourceError
from sfumato.core.exact import NORMAL_95
from sfumato.core.facts.column import Column, parse_column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values
from sfumato.core.questions.moments import SCORE_GRID
from sfumato.inference.models.additive import AdditiveModel, Score, label_cells, read_model
from sfumato.inference.models.clusters import ClusterModel, read_clusters
from sfumato.inference.models.cumulative import DistributionModel, Quantile, read_distribution
from sfumato.inference.models.document import FORMAT, pack_model
from sfumato.inference.models.linear import RegressionModel, read_regression
from sfumato.inference.models.network import NetworkModel, read_network
from sfumato.release.folder import open_folder
from sfumato.tables.arrays import Floats, Whole
from sfumato.tables.codes import encode_public
from sfumato.tables.read import TableLike, read_table

_AnyModel = AdditiveModel | RegressionModel | NetworkModel | DistributionModel | ClusterModel


class Model(ABC):
    """A released model: what it predicts, for whom, and how it can be taken elsewhere.

    `predict` gives the class or the number that is expected, `predict_proba` the probability of every class
    in the order of `classes_`. `unknown` tells how many values of new data the model does not know.
    """

    of_unknown: ClassVar[str]
    """What values that the model does not know do."""
    no_sql: ClassVar[str] = ""
    """Why there is no SQL that predicts."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = dict(document)
        try:
            self.target = str(document["target"])
            self._columns: dict[str, Column] = {
                name: parse_column(name, spec) for name, spec in document["columns"].items()
            }
            self._model: _AnyModel = self._read()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ReleaseError(
                f"model.json is no {document['recipe']} model ({type(error).__name__})"
            ) from None

    @abstractmethod
    def _read(self) -> _AnyModel:
        """Return the model that the document describes."""

    def to_sql(self, table: str) -> str:
        """Return a SELECT that predicts for every row of `table`: one CASE per term, for any database.

        Classes get their `probability`, one column each if there are more than two; numbers are `predicted`.
        Other models than additive, linear and logistic ones are refused.
        """
        del table
        raise ReleaseError(self.no_sql)

    def __repr__(self) -> str:
        terms = ", ".join(self.inputs)
        return f"{type(self).__name__}({self.family} of {self.target!r} from {terms})"

    @property
    def family(self) -> str:
        """Return whether it predicts classes ("classification"), numbers ("regression") or "counts"."""
        return self._model.family

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the columns it predicts from."""
        return tuple(self._columns)

    @property
    def stored(self) -> tuple[str, ...]:
        """Return the columns that new data must have."""
        return tuple(dict.fromkeys(part for column in self._columns.values() for part in column.stored))

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """Return how it did on held-out people, with 95 % intervals; None if nobody was held out.

        The figures stand under `accuracy`, `auroc`, `log_loss`, or `r_squared` and `rmse`, each with `value`,
        `low_95` and `high_95`; a `note` says what the noise hides.
        """
        found = self._document.get("evaluation")
        return dict(found) if found else None

    @property
    def classes_(self) -> NDArray[Any]:
        """Return the classes, in the order of `predict_proba`."""
        self._require_classes()
        kinds = {type(each) for each in self._model.classes}
        return np.array(self._model.classes, dtype=None if len(kinds) == 1 else object)

    def predict(self, data: TableLike) -> NDArray[Any]:
        """Return the class or the number that is expected for every row, in the order of the rows."""
        if self.family == "classification":
            return np.asarray(self.classes_[np.argmax(self.predict_proba(data), axis=1)])
        codes, rows = self._encode(data)
        return self._model.numbers(codes, rows)

    def predict_proba(self, data: TableLike) -> Floats:
        """Return the probability of every class, one row for every row of `data`."""
        self._require_classes()
        codes, rows = self._encode(data)
        return self._model.probabilities(codes, rows)

    def unknown(self, data: TableLike) -> dict[str, int]:
        """Return how many rows of `data` have a value unknown to the model, for every column that has any."""
        codes, _ = self._encode(data)
        found = {name: int((each < 0).sum()) for name, each in codes.items()}
        return {name: count for name, count in found.items() if count}

    def plot(self, term: str | None = None, *, ax: Any = None) -> Any:  # noqa: ANN401 - matplotlib's axes
        """Return a picture of what each input does, or of one `term`; on matplotlib's axes if given."""
        from sfumato.report.plots import plot_model

        return plot_model(self._document, term, ax=ax)

    def _repr_svg_(self) -> str:
        svg: str = self.plot().svg
        return svg

    def to_json(self) -> str:
        """Return the model as model.json has it: its numbers, the domains of its inputs, and its privacy."""
        return pack_model(self._document).decode()

    def to_sklearn(self) -> Any:  # noqa: ANN401 - scikit-learn is not a dependency
        """Return an estimator that is fitted already, by the conventions of scikit-learn."""
        return _make_estimator(self)

    def _require_classes(self) -> None:
        if self.family != "classification":
            raise AttributeError(
                f"the model predicts {self.target!r} as a number, so it has no classes; use predict"
            )

    def _encode(self, data: TableLike) -> tuple[dict[str, Whole], int]:
        table = read_table(data, side="new data", columns=self.stored)
        try:
            codes = {name: encode_public(column, table) for name, column in self._columns.items()}
        except RecipeError as error:
            raise SourceError(str(error).replace("the public table", "new data")) from None
        return codes, table.num_rows


class AdditivePredictor(Model):
    """A released additive model: an intercept, functions of inputs and of pairs of them, in lookup tables.

    A value that the model does not know adds nothing to its score, as an average one would.
    """

    of_unknown: ClassVar[str] = "add nothing"
    _model: AdditiveModel

    def _read(self) -> AdditiveModel:
        sizes = {name: column.size for name, column in self._columns.items()}
        model = read_model(self._document, sizes)
        for score in model.scores:
            for shape in score.shapes:
                cells = int(np.prod([sizes.get(name, 0) for name in shape.columns]))
                if shape.scores.size != cells or shape.deviations.size != cells:
                    raise ReleaseError(
                        f"model.json: the term of {' x '.join(shape.columns)} has a wrong size"
                    )
        return model

    def shapes(self) -> list[dict[str, Any]]:
        """Return for every term its columns, labels, effects, and the ends of a 95 % band of its noise."""
        unit = float(self._model.unit)
        several = len(self._model.scores) > 1
        found = []
        for place, score in enumerate(self._model.scores):
            for shape in score.shapes:
                effects, reach = shape.scores * unit, shape.deviations * unit * NORMAL_95
                labels = label_cells([self._columns[name].labels for name in shape.columns])
                found.append(
                    {
                        "columns": shape.columns,
                        "class": self._model.classes[place] if several else None,
                        "labels": labels,
                        "effects": effects.tolist(),
                        "low": (effects - reach).tolist(),
                        "high": (effects + reach).tolist(),
                    }
                )
        return found

    def to_sql(self, table: str) -> str:
        """Return a SELECT that predicts for every row of `table`: one CASE per term, for any database."""
        return score_sql(self._model, self._columns, table=table)


class RegressionPredictor(Model):
    """A released linear or logistic model: a constant and coefficients, with intervals.

    A number that the model does not know counts as the middle of its bounds, a label as the one left out.
    """

    of_unknown: ClassVar[str] = "count as the middle of their bounds, or as the label that was left out"
    _model: RegressionModel

    def _read(self) -> RegressionModel:
        model = read_regression(self._document, self._columns)
        if model.family != self._document["family"] or (model.bounds is None and len(model.classes) != 2):
            raise ValueError
        return model

    def coefficients(self) -> list[dict[str, Any]]:
        """Return for the constant and every term its input, label, coefficient, standard error and interval.

        Where `identified` is false the noise hides the coefficient, and there is no interval.
        """
        keys = ("coefficient", "standard_error", "low_95", "high_95", "identified")
        return [
            {
                "input": "(constant)" if term["column"] is None else term["column"],
                "label": term.get("label"),
                **{key: term.get(key) for key in keys},
            }
            for term in self._document["terms"]
        ]

    def components(self) -> list[dict[str, Any]]:
        """Return the principal components of the scaled inputs of a linear model that stand out of the noise.

        For each its `variance`, the standard deviation `noise` that the noise gives to it, and its `loadings`
        by input, or by input and label. They come from the moments that the model was fitted to, so they
        cost nothing. A logistic model has none.
        """
        found = self._document.get("components")
        if found is None:
            return []
        names = [
            term["column"] if "label" not in term else f"{term['column']}={term['label']}"
            for term in found["of"]
        ]
        listed = zip(found["variances"], found["deviations"], found["loadings"], strict=True)
        return [
            {"variance": variance, "noise": noise, "loadings": dict(zip(names, loadings, strict=True))}
            for variance, noise, loadings in listed
        ]

    def to_sql(self, table: str) -> str:
        """Return a SELECT that predicts for every row of `table`: one CASE per input, for any database."""
        return regression_sql(self._model, self._columns, table=table)


class NetworkPredictor(Model):
    """A released neural network.

    A number that the model does not know counts as the middle of its bounds, a label as the one left out.
    """

    of_unknown: ClassVar[str] = "count as the middle of their bounds, or as the label that was left out"
    no_sql: ClassVar[str] = (
        "a network is not exported to SQL: it would be thousands of terms in nested expressions; predict "
        "with predict or `sfumato predict`, take to_json(), or fit additive, linear or logistic"
    )
    _model: NetworkModel

    def _read(self) -> NetworkModel:
        model = read_network(self._document, self._columns)
        if model.family != self._document["family"]:
            raise ValueError
        return model


class Distribution(Model):
    """A released distribution: cumulative counts of one column, and all quantiles of it."""

    of_unknown: ClassVar[str] = "are in no cell"
    no_sql: ClassVar[str] = "a distribution predicts nothing; its table can be loaded as it is"
    _model: DistributionModel

    def _read(self) -> DistributionModel:
        return read_distribution(self._document, self._columns)

    def quantile(self, share: float, *, group: object = None) -> Quantile:
        """Return the value up to which `share` of the records lie, in `group` if the release has groups."""
        if not 0 < share < 1:
            raise RecipeError(
                "a quantile is a share above 0 and below 1, such as 0.5 for the median; noisy counts do "
                "not tell the smallest and the largest value"
            )
        return self._model.quantile(self._row(group), float(share))

    def share_upto(self, value: float, *, group: object = None) -> float:
        """Return the share of the records up to `value`, in the steps of the release."""
        return self._model.share_upto(self._row(group), float(value))

    def _row(self, group: object) -> int:
        labels = self._model.groups
        if group not in labels:
            raise RecipeError(
                "this distribution has no groups; leave `group` out"
                if labels == (None,)
                else f"group must be a label of {next(iter(self._columns))!r} of the release"
            )
        row = labels.index(group)
        if not self._model.is_known(row):
            raise ReleaseError(
                "the total of this group lies within its noise, so that its shares are not known; spend more "
                "epsilon, or group by fewer labels"
            )
        return row


class ClusterPredictor(Model):
    """Released centres: `predict` gives the number of the nearest one, as the release numbers them."""

    of_unknown: ClassVar[str] = "put a row into no cluster, which is number 0"
    no_sql: ClassVar[str] = "clusters have no form in SQL; use predict"
    _model: ClusterModel

    def _read(self) -> ClusterModel:
        return read_clusters(self._document, self._columns, grid=SCORE_GRID)

    @property
    def found(self) -> bool:
        """Whether there are clusters beyond the noise; if not, there is the one centre of all records."""
        return bool(self._document["found"])

    @property
    def centres(self) -> Floats:
        """Return the centres in the units of the columns, the largest cluster first."""
        return np.array(self._document["centres"], np.float64)

    @property
    def sizes(self) -> Whole:
        """Return the noisy number of records that are nearest to each centre."""
        return np.array(self._document["sizes"], np.int64)


_KINDS: dict[str, type[Model]] = {
    "additive": AdditivePredictor,
    "clusters": ClusterPredictor,
    "linear": RegressionPredictor,
    "logistic": RegressionPredictor,
    "network": NetworkPredictor,
    "quantiles": Distribution,
}


def parse_model(content: bytes | str) -> Model:
    """Return the model that the text of a model.json describes."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ReleaseError("model.json is not valid JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReleaseError(f"model.json is not of the format {FORMAT!r}")
    if document.get("recipe") not in _KINDS:
        raise ReleaseError(f"model.json is of a recipe that this version does not know ({', '.join(_KINDS)})")
    return _KINDS[document["recipe"]](document)


def open_model(folder: Path | str) -> Model:
    """Return the model that was released to `folder`, if the folder is what its certificate describes."""
    opened = open_folder(folder, load=("model.json",))
    if "model.json" not in opened.files:
        raise ReleaseError(
            f"{opened.name!r} is a release without a model; the recipes of sfumato.learn make one"
        )
    return parse_model(opened.files["model.json"])


def to_columns(model: Model, data: TableLike) -> pa.Table:
    """Return the predictions as columns: `predicted`, and of classes the probability of each."""
    columns: dict[str, Any] = {}
    if model.family == "classification":
        chances = model.predict_proba(data)
        columns["predicted"] = pa.array(model.classes_[np.argmax(chances, axis=1)].tolist())
        for place, label in enumerate(model.classes_.tolist()):
            columns[f"probability of {label}"] = pa.array(chances[:, place])
    else:
        columns["predicted"] = pa.array(model.predict(data))
    return pa.table(columns)


class _Estimator:
    """What scikit-learn asks of an estimator, of a released model."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def feature_names_in_(self) -> list[str]:
        """Return the columns that new data must have, by scikit-learn's name."""
        return list(self.model.stored)

    def fit(self, data: TableLike, target: object = None) -> _Estimator:
        """Return the same model: it was fitted privately, and is not fitted again."""
        del data, target
        return self

    def predict(self, data: TableLike) -> NDArray[Any]:
        """Return the class or the number that is expected for every row."""
        return self.model.predict(data)


class _Classifier(_Estimator):
    """A model of classes."""

    @property
    def classes_(self) -> NDArray[Any]:
        """Return the classes, in the order of `predict_proba`."""
        return self.model.classes_

    def predict_proba(self, data: TableLike) -> NDArray[Any]:
        """Return the probability of every class, one row for every row of `data`."""
        return self.model.predict_proba(data)


def _make_estimator(model: Model) -> Any:  # noqa: ANN401 - scikit-learn is not a dependency
    """Return an estimator around `model`, also one of scikit-learn's own where that is installed."""
    mine: type = _Classifier if model.family == "classification" else _Estimator
    try:
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    except ImportError:
        return mine(model)
    mixin = ClassifierMixin if model.family == "classification" else RegressorMixin
    return type("ReleasedModel", (mine, mixin, BaseEstimator), {"__doc__": mine.__doc__})(model)


_PARTS = {"year": "YEAR", "month": "MONTH", "hour": "HOUR"}
_MOST_BRANCHES = 16  # of bins of one width, before a line through them is written as a formula
_FAR = 700  # scores beyond it are more than EXP can take


def score_sql(model: AdditiveModel, columns: Mapping[str, Column], *, table: str) -> str:
    """Return the statement that predicts for every row of `table`."""
    unit = _double(model.unit)
    scores = [_sum(score, columns) for score in model.scores]
    if model.family == "classification":
        chances = [f"1.0 / (1.0 + EXP(-{unit} * ({score})))" for score in scores]
        if len(chances) == 1:
            shown = [f'{chances[0]} AS "probability"']
        else:
            total = " + ".join(f"({chance})" for chance in chances)
            shown = [
                f"({chance}) / ({total}) AS {_quote(f'probability of {label}')}"
                for chance, label in zip(chances, model.classes, strict=True)
            ]
    else:
        inner = f"{unit} * ({scores[0]})"
        number = f"EXP({inner})" if model.family == "counts" else f"{_double(model.low)} + {inner}"
        shown = [f'{_hold(number, model.low, model.high)} AS "predicted"']
    return f"SELECT *, {', '.join(shown)} FROM {_quote(table)}"


def regression_sql(model: RegressionModel, columns: Mapping[str, Column], *, table: str) -> str:
    """Return the statement that predicts for every row of `table` with a linear or logistic model."""
    parts, reach = [_double(model.constant)], abs(model.constant)
    for name, effects in model.effects.items():
        unknown = model.unknown[name]
        if not effects.any() and not unknown:
            continue
        reach += max(float(np.abs(effects).max()), abs(unknown))
        texts = [_double(each) for each in effects.tolist()]
        line = _line(columns[name], model.slopes[name], texts) if name in model.slopes else None
        parts.append(_case(columns[name], texts, rest=_double(unknown), line=line))
    score = " + ".join(parts)
    if model.bounds is not None:
        shown = f'{_hold(score, *model.bounds)} AS "predicted"'
    else:
        held = score if reach < _FAR else _hold(score, -_FAR, _FAR)
        shown = f'1.0 / (1.0 + EXP(-({held}))) AS "probability"'
    return f"SELECT *, {shown} FROM {_quote(table)}"


def _hold(number: str, least: float | Fraction, most: float | Fraction) -> str:
    """Return `number`, held between two others."""
    low, high = _double(least), _double(most)
    return f"CASE WHEN {number} < {low} THEN {low} WHEN {number} > {high} THEN {high} ELSE {number} END"


def _line(column: Column, slope: float, scores: list[str]) -> list[tuple[str, str]] | None:
    """Return conditions for a line through the numbers of a column, or None if every code gets its own."""
    domain = column.domain
    size = len(scores) - len(column.extras)
    clamp = column.outside == "clamp"
    if isinstance(domain, Bins):
        low, high = domain.edges[0], domain.edges[-1]
        width = (high - low) / size
        if size <= _MOST_BRANCHES or any(two - one != width for one, two in pairwise(domain.edges)):
            return None
        # The first and the last bin are told from the others, so that no rounding leads out of the domain.
        name = _quote(column.stored[0])
        place = f"FLOOR(({name} - {_double(low)}) / {_double(width)})"
        middle = f"{_double(slope)} * ({_double(low + width / 2)} + {_double(width)} * {place})"
        ends = (low, low + width, True, False), (high - width, high, False, True), (low, high, True, True)
        found = [_between(name, *end, clamp=clamp) for end in ends]
        return list(zip(found, (scores[0], scores[size - 1], middle), strict=True))
    name, low_end, high_end = _whole_number(column)
    found = [f"{name} BETWEEN {low_end} AND {high_end}"]
    texts = [f"{_double(slope)} * {name}"]
    if clamp:
        found += [f"{name} < {low_end}", f"{name} > {high_end}"]
        texts += [scores[0], scores[size - 1]]
    return list(zip(found, texts, strict=True))


def _sum(score: Score, columns: Mapping[str, Column]) -> str:
    parts = [str(score.intercept)]
    for shape in score.shapes:
        if shape.scores.any():
            texts = [str(each) for each in shape.scores.tolist()]
            parts.append(_nest([columns[name] for name in shape.columns], texts))
    return " + ".join(parts)


def _nest(columns: Sequence[Column], scores: list[str]) -> str:
    """Return the score of a term: by the first column, and within each of its values by the next."""
    column, rest = columns[0], columns[1:]
    if rest:
        step = len(scores) // column.size
        scores = [_nest(rest, scores[start : start + step]) for start in range(0, len(scores), step)]
    return _case(column, scores, rest="0")


def _case(column: Column, scores: list[str], *, rest: str, line: list[tuple[str, str]] | None = None) -> str:
    """Return score of one term: first of a missing value, then by value or `line`, at last of any other."""
    size = len(scores) - len(column.extras)
    extras = dict(zip(column.extras, scores[size:], strict=True))
    first = _quote(column.stored[0])
    whens = []
    if column.missing_label is not None:
        absent = f"{first} IS NULL"
        if column.missing:
            absent += f" OR CAST({first} AS VARCHAR) IN ({', '.join(map(_literal, column.missing))})"
        whens.append((absent, extras[column.missing_label]))
    whens += line or _conditions(column, scores[:size])
    rest = extras["other"] if column.outside == "other" else rest
    listed = " ".join(f"WHEN {condition} THEN {score}" for condition, score in whens if score != rest)
    # What is equal to the rest needs no branch of its own, unless a later one would catch it.
    if any(score == rest for _, score in whens):
        listed = " ".join(f"WHEN {condition} THEN {score}" for condition, score in whens)
    return f"CASE {listed} ELSE {rest} END" if listed else rest


def _conditions(column: Column, scores: list[str]) -> list[tuple[str, str]]:
    domain, name = column.domain, _quote(column.stored[0])
    if isinstance(domain, Values):
        if column.calendar is not None:
            length = len(str(domain.labels[0]))
            name = f"SUBSTR(CAST(DATE_TRUNC('{column.calendar}', {name}) AS VARCHAR), 1, {length})"
        by_score: dict[str, list[str]] = {}
        for label, score in zip(domain.labels, scores, strict=True):
            by_score.setdefault(score, []).append(_literal(label))
        return [(f"{name} IN ({', '.join(labels)})", score) for score, labels in by_score.items()]
    if isinstance(domain, Tuples):
        return [
            (
                " AND ".join(
                    f"{_quote(part)} = {_literal(each)}"
                    for part, each in zip(column.stored, value, strict=True)
                ),
                score,
            )
            for value, score in zip(domain.values, scores, strict=True)
        ]
    clamp = column.outside == "clamp"
    if isinstance(domain, Bins):
        edges = domain.edges
        return list(
            _runs(
                scores,
                lambda a, b: _between(
                    name, edges[a], edges[b + 1], a == 0, b == len(scores) - 1, clamp=clamp
                ),
            )
        )
    name, low, _ = _whole_number(column)

    def whole(a: int, b: int) -> str:
        if clamp and a == 0:
            return f"{name} <= {low + b}"
        if clamp and b == len(scores) - 1:
            return f"{name} >= {low + a}"
        return f"{name} BETWEEN {low + a} AND {low + b}"

    return list(_runs(scores, whole))


def _whole_number(column: Column) -> tuple[str, int, int]:
    """Return a column of whole numbers or parts of dates as SQL writes it, and its ends."""
    domain, name = column.domain, _quote(column.stored[0])
    assert isinstance(domain, (IntegerRange, Period))
    if isinstance(domain, IntegerRange):
        return name, domain.low, domain.high
    part = _PARTS.get(domain.part)
    # Days of the week are numbered from Monday on.
    name = f"EXTRACT({part} FROM {name})" if part else f"(EXTRACT(ISODOW FROM {name}) - 1)"
    return name, domain.span.low, domain.span.high


def _between(name: str, low: Fraction, high: Fraction, first: bool, last: bool, *, clamp: bool) -> str:  # noqa: FBT001
    parts = []
    if not (clamp and first):
        parts.append(f"{name} >= {_number(low)}")
    if not (clamp and last):
        parts.append(f"{name} {'<=' if last else '<'} {_number(high)}")
    return " AND ".join(parts) or f"{name} IS NOT NULL"


def _runs(scores: list[str], condition: Callable[[int, int], str]) -> Iterator[tuple[str, str]]:
    """Return a condition for every run of equal scores, from its first code to its last."""
    start = 0
    for place in range(1, len(scores) + 1):
        if place == len(scores) or scores[place] != scores[start]:
            yield condition(start, place - 1), scores[start]
            start = place


def _quote(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _literal(value: int | str) -> str:
    """Return a label as SQL writes it."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _double(value: float | Fraction) -> str:
    """Return a number with an exponent, which no database takes for a decimal of few digits."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _number(value: Fraction) -> str:
    return str(int(value)) if value.denominator == 1 else repr(float(value))
