"""A released model by the conventions of scikit-learn: fitted already, so that `fit` changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.learn.model import Model
    from sfumato.tables.read import TableLike


class _Estimator:
    """What scikit-learn asks of an estimator, of a released model."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def feature_names_in_(self) -> list[str]:
        """The columns that new data must have."""
        return list(self.model.stored)

    def fit(self, data: TableLike, target: object = None) -> _Estimator:
        """The same model: it was fitted privately, and is not fitted again."""
        del data, target
        return self

    def predict(self, data: TableLike) -> NDArray[Any]:
        """The class or the number that is expected for every row."""
        return self.model.predict(data)


class _Classifier(_Estimator):
    """A model of classes."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of `predict_proba`."""
        return self.model.classes_

    def predict_proba(self, data: TableLike) -> NDArray[Any]:
        """The probability of every class, one row for every row of `data`."""
        return self.model.predict_proba(data)


def make_estimator(model: Model) -> Any:  # noqa: ANN401 - scikit-learn is not a dependency
    """An estimator around `model`, also one of scikit-learn's own where that is installed."""
    mine: type = _Classifier if model.family == "classification" else _Estimator
    try:
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    except ImportError:
        return mine(model)
    mixin = ClassifierMixin if model.family == "classification" else RegressorMixin
    return type("ReleasedModel", (mine, mixin, BaseEstimator), {"__doc__": mine.__doc__})(model)
