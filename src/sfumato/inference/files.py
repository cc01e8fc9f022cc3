"""Fitted models as one Parquet file, and back: the same models give the same bytes.

One row per cell, clique after clique and model after model: `model` is the key of the model (its
epsilon), `clique` the place of the clique in its tree, `value` the expected count of the cell, cells in
row-major order of the clique's columns. The first row of a model says all else about it, as JSON, in
`about`.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.errors import RecipeError, ReleaseError
from sfumato.core.exact import parse_whole
from sfumato.inference.domain import Domain
from sfumato.inference.estimation import LARGEST_TREE
from sfumato.inference.kernels import find_steps, marginalise
from sfumato.inference.model import Model
from sfumato.inference.tree import Tree
from sfumato.tables.arrays import label_array

_COLUMNS = ("model", "clique", "value", "about")
_FACTS = ("format", "domain", "cliques", "parents", "separators", "total", "loss", "evaluations", "seed")
_FORMAT = "sfumato model 1"
_MOST_MODELS = 100
_CLOSE = 1e-3  # the share of the records by which the tables of a model may contradict each other


def quantise(model: Model) -> Model:
    """Return `model` with its tables rounded to 24 significant bits, which halves its file.

    A release that draws rows draws them from this one, so that they follow from the file.
    """
    values = np.asarray(model.values, np.float64)
    if values.size and float(np.abs(values).max()) > float(np.finfo(np.float32).max):
        raise RecipeError("the model expects more records than a table can hold")
    with np.errstate(under="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    return replace(model, values=rounded)


def pack_model(models: Mapping[str, Model]) -> bytes:
    """Return the models by their key, the epsilon as text, as a Parquet file that reads back bit by bit.

    >>> from sfumato.inference.domain import Measurement

    >>> from sfumato.inference.estimation import estimate
    >>> noisy = Measurement(columns=("a",), values=np.array([30.0, 70.0]), sigma=0.1)
    >>> model = quantise(estimate(Domain({"a": 2}), [noisy]))
    >>> unpack_models(pack_model({"1": model}))["1"].values.tolist() == model.values.tolist()
    True
    """
    if not 1 <= len(models) <= _MOST_MODELS:
        raise RecipeError(f"a release holds between 1 and {_MOST_MODELS} models")
    sizes = [model.values.size for model in models.values()]
    cliques = [_places(model.tree) for model in models.values()]
    values = np.concatenate([model.values for model in models.values()])
    with np.errstate(under="ignore", over="ignore"):
        short = values.astype(np.float32)
    # Quantised values are kept in four bytes each, others as they are.
    values = short if np.array_equal(short.astype(np.float64), values) else values
    which = np.repeat(np.arange(len(models), dtype=np.int32), sizes)
    about: list[pa.Array] = []
    for model in models.values():
        about.append(pa.array([json.dumps(_describe(model))], pa.string()))
        about.append(pa.nulls(model.values.size - 1, pa.string()))
    table = pa.table(
        {
            "model": label_array(which, tuple(models)),
            "clique": to_arrow(np.concatenate(cliques)),
            "value": to_arrow(values),
            "about": pa.concat_arrays(about),
        }
    )
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["model", "clique"],
        column_encoding={"value": "BYTE_STREAM_SPLIT", "about": "PLAIN"},
        write_statistics=False,
        store_schema=False,
    )
    return sink.getvalue()


def unpack_models(payload: bytes) -> dict[str, Model]:
    """Return the models of a packed file by their key; a file that holds no valid model is refused."""
    try:
        table = _read(payload)
        return {key: _read_model(rows) for key, rows in _part_models(table).items()}
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, OverflowError) as error:
        reason = str(error) if type(error) in (ValueError, RecipeError) else type(error).__name__
        raise ReleaseError(f"model.parquet holds no model that can be used: {reason[:200]}") from None
    except RecursionError:
        deep = "its description is nested too deep"
        raise ReleaseError(f"model.parquet holds no model that can be used: {deep}") from None


def _describe(model: Model) -> dict[str, Any]:
    tree = model.tree
    return {
        "format": _FORMAT,
        "domain": [[name, size] for name, size in tree.domain.items()],
        "cliques": [list(clique) for clique in tree.cliques],
        "parents": list(tree.parents),
        "separators": [list(separator) for separator in tree.separators],
        "total": float(model.total),
        "loss": float(model.loss),
        "evaluations": int(model.evaluations),
        "seed": int(model.seed),
    }


def _places(tree: Tree) -> NDArray[np.int32]:
    cells = [tree.domain.cells(clique) for clique in tree.cliques]
    return np.repeat(np.arange(len(cells), dtype=np.int32), cells)


def _read(payload: bytes) -> pa.Table:
    file = pq.ParquetFile(io.BytesIO(payload))
    # A few bytes can promise any number of rows, so the promise is looked at before it is believed.
    if not 1 <= file.metadata.num_rows <= 4 * LARGEST_TREE:
        raise ValueError("no row, or more than a model may have")
    schema = file.schema_arrow
    kinds = (pa.string(), pa.int32(), schema.types[2] if len(schema.types) > 2 else None, pa.string())
    if tuple(schema.names) != _COLUMNS or tuple(schema.types) != kinds:
        raise ValueError(f"its columns are not {', '.join(_COLUMNS)}")
    if schema.types[2] not in (pa.float32(), pa.float64()):
        raise ValueError("its values are not numbers")
    table = pq.read_table(io.BytesIO(payload), read_dictionary=["model"])
    if any(table[name].null_count for name in ("model", "clique", "value")):
        raise ValueError("a value is missing")
    return table


def _part_models(table: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each model, which must stand together."""
    which = to_numpy(table["model"].combine_chunks().indices)
    starts = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), table.num_rows]
    if len(starts) - 1 > _MOST_MODELS:
        raise ValueError("too many models, or models that are not in their order")
    parts = {
        table["model"][start].as_py(): table.slice(start, stop - start) for start, stop in pairwise(starts)
    }
    if len(parts) != len(starts) - 1:
        raise ValueError("the rows of a model do not stand together")
    return parts


def _read_model(rows: pa.Table) -> Model:
    texts = rows["about"]
    if texts.null_count != rows.num_rows - 1 or not texts[0].is_valid:
        raise ValueError("a model is described in its first row, and there alone")
    about = json.loads(texts[0].as_py())
    if not isinstance(about, dict) or tuple(about) != _FACTS or about["format"] != _FORMAT:
        raise ValueError(f"a model is not described as {_FORMAT!r}")
    tree = _read_tree(about)
    if tree.cells != rows.num_rows:
        raise ValueError(f"a tree of {tree.cells:,} cells with tables of {rows.num_rows:,}")
    if not np.array_equal(to_numpy(rows["clique"].combine_chunks()), _places(tree)):
        raise ValueError("the tables of a model are not in the order of its cliques")
    total, loss = (_read_amount(about[name], name) for name in ("total", "loss"))
    evaluations, seed = (parse_whole(about[name], name=name, low=0) for name in ("evaluations", "seed"))
    values = to_numpy(rows["value"].combine_chunks()).astype(np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("a table with values that are negative or not finite")
    model = Model(tree, values, total=total, loss=loss, evaluations=evaluations, seed=seed)
    _check_tables(model)
    return model


def _read_tree(about: Mapping[str, Any]) -> Tree:
    """Return tree that a description states, if every edge of it joins what it says and nothing is hidden."""
    domain = Domain({_read_name(name): size for name, size in about["domain"]})
    cliques = tuple(tuple(_read_name(name) for name in clique) for clique in about["cliques"])
    separators = tuple(tuple(_read_name(name) for name in each) for each in about["separators"])
    parents = tuple(about["parents"])
    if len(domain) != len(about["domain"]) or not len(cliques) == len(parents) == len(separators) >= 1:
        raise ValueError("a column is named twice, or cliques, parents and separators differ in number")
    if set().union(*cliques) != set(domain) or any(
        not clique or domain.order(clique) != clique for clique in cliques
    ):
        raise ValueError("the cliques do not hold the columns of the domain in their order")
    seen: set[str] = set()
    for place, (clique, parent, separator) in enumerate(zip(cliques, parents, separators, strict=True)):
        rooted = parent == -1 if place == 0 else 0 <= parent < place
        if isinstance(parent, bool) or not isinstance(parent, int) or not rooted:
            raise ValueError("a clique does not come after its parent")
        shared = domain.order(set(clique) & set(cliques[parent])) if place else ()
        # What a clique shares with any before it, its parent must hold: the running intersection.
        if separator != shared or not set(clique) & seen <= set(shared):
            raise ValueError("the cliques are no junction tree")
        seen |= set(clique)
    return Tree(domain=domain, cliques=cliques, parents=parents, separators=separators)


def _check_tables(model: Model) -> None:
    """Complains about tables that contradict the total or each other."""
    tree, most = model.tree, _CLOSE * model.total
    for place, (clique, parent, separator) in enumerate(
        zip(tree.cliques, tree.parents, tree.separators, strict=True)
    ):
        table = model.table(place)
        if not abs(float(table.sum()) - model.total) <= most:
            raise ValueError(f"the table of {' x '.join(clique)} does not sum to the total")
        if separator:
            above = marginalise(model.table(parent), find_steps(tree.domain, tree.cliques[parent], separator))
            own = marginalise(table, find_steps(tree.domain, clique, separator))
            if not float(np.abs(above - own).sum()) <= most:
                raise ValueError(f"the table of {' x '.join(clique)} contradicts that of its parent")


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a column without a name")
    return value


def _read_amount(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"its {name} is not a number of at least 0")
    return float(value)
