"""Release folders made by hand, for what no small release shows: hostile names, very large tables."""

import hashlib
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = "</script><img src=x onerror=alert(1)>"


def column(**domain):
    return {"outside": "drop", "origin": "the project file", **domain}


def measure(name, columns, cells, *, kind="laplace", scale="20", epsilon="1", **more):
    return {
        "name": name,
        "columns": list(columns),
        "cells": cells,
        "count": 1,
        "delta": "0",
        "kind": kind,
        "neighbours": "add-remove",
        "norm": "L1",
        "scale": scale,
        "sensitivity": scale,
        "unit": "person",
        "epsilon": epsilon if kind == "laplace" else None,
        "rho": "0.37",
        "mu": "1.23",
        **more,
    }


def pack(table):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def write_release(folder, *, table, columns, measured=(), recipe=None, total=None, files=None, **certificate):
    """Writes a folder that looks like a release; `measured` pairs a record with its noisy values."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {"measurement": [], "cell": [], "noisy_value": [], "noise_scale": []}
    for record, values in measured:
        rows["measurement"] += [record["name"]] * len(values)
        rows["cell"] += range(len(values))
        rows["noisy_value"] += list(values)
        rows["noise_scale"] += [float(record.get("scale", 0))] * len(values)
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.float64())
    answers = pa.table({name: pa.array(rows[name], kind) for name, kind in zip(rows, kinds, strict=True)})
    content = {
        "table.parquet": pack(table),
        "measurements.parquet": pack(answers),
        "table.csv": b"",
        "writeup.md": b"",
        **(files or {}),
    }
    spec = {"source": "t.parquet", "unit": "person", "max_records": 20, "columns": columns}
    document = {
        "format": "sfumato certificate 1",
        "unit": {
            "column": "person",
            "max_records": 20,
            "neighbours": "add-remove",
            "bounding": "truncate",
            "grid": 1,
            "contribution": 20,
        },
        "plan": {
            "recipe": recipe or {"recipe": "made-up", "table": "t"},
            "table": {"t": spec},
            "epsilons": ["1"],
            "delta": "0",
        },
        "plan_sha256": "0" * 64,
        "measurements": [record for record, _ in measured],
        "total": total
        or {"epsilon": "1", "rho": "0.37", "mu_squared": "1.52", "epsilon_at_delta": {"1e-6": "1"}},
        "public": {},
        "ledger": {
            "sequence": 2,
            "hash": "ab" * 32,
            "previous": "cd" * 32,
            "recorded_at": "2026-01-02T03:04:05+00:00",
        },
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in content.items()},
        "versions": {"python": "3.11", "sfumato": "0"},
        **certificate,
    }
    for name, data in content.items():
        (folder / name).write_bytes(data)
    (folder / "certificate.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def write_counts(folder, *, places=12, months=4, labels=None, **more):
    """A table of counts by place and month with one measurement of all cells."""
    names = list(labels or (f"place {number}" for number in range(places)))
    grid = np.stack(np.meshgrid(np.arange(len(names)), np.arange(months), indexing="ij"), -1).reshape(-1, 2)
    noisy = (grid[:, 0] + 1) * 90 * (1 + grid[:, 1]) // 10 - 30
    table = pa.table(
        {
            "place": pa.array([names[code] for code in grid[:, 0]]),
            "month": grid[:, 1] + 1,
            "count": np.maximum(noisy, 0),
        }
    )
    columns = {"place": column(values=names), "month": column(range=[1, months])}
    record = measure("counts at epsilon 1", ("place", "month"), noisy.size)
    return write_release(folder, table=table, columns=columns, measured=[(record, noisy.tolist())], **more)


def compare(columns=("place", "month")):
    """A comparison record with every part."""
    names = list(columns)
    size = len(names)
    one = {"mean": 0.02, "worst": 0.05, "count": size}
    half = np.eye(size) * 0.5 + 0.5
    return {
        "internal": "INTERNAL: not private",
        "rows": {"truth": 4321, "release": 4400.0},
        "columns": names,
        "marginals": {
            "1": one,
            "2": {"mean": 0.04, "worst": 0.07, "count": 1},
            "3": {"mean": None, "worst": None, "count": 0},
            "list": [{"columns": [name], "tvd": 0.01 * (turn + 1)} for turn, name in enumerate(names)],
        },
        "associations": {
            "columns": names,
            "truth": half.tolist(),
            "release": (half * 0.9).tolist(),
            "worst": [{"columns": names[:2], "truth": 0.5, "release": 0.45}],
        },
        "propensity": {"pmse": 0.01, "expected": 0.001, "ratio": 10.0, "auc": 0.61},
        "downstream": [
            {"target": names[0], "trained_on_release": 0.7, "trained_on_truth": 0.75, "majority": 0.5}
        ],
        "groups": [{"column": names[0], "value": "a", "truth": 10, "release": 12, "tvd": 0.2}],
        "ladder": {
            "release": 0.04,
            "rungs": [{"share": 0.01, "tvd": 0.2}, {"share": 0.5, "tvd": 0.03}, {"share": 0.9, "tvd": 0.01}],
            "share": 0.4,
        },
        "references": [{"name": "all-zero release", "tvd1": 1.0, "tvd2": 1.0, "tvd3": None}],
    }
