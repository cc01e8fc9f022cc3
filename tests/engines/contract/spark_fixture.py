"""The tables of the contract in Spark: the same Parquet files, read by local[2]."""

import importlib.util
import os
from pathlib import Path

import pytest

HELPER = Path(__file__).resolve().parents[2] / "helpers" / "spark.py"


def load_spark(folder):
    """The engine, and the source of each table that is stored in `folder`."""
    spec = importlib.util.spec_from_file_location("spark_helper", HELPER)
    helper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helper)
    if missing := helper.why_missing():
        pytest.skip(missing)
    from sfumato.engines import open_engine

    os.environ.pop("SPARK_REMOTE", None)
    os.environ.update(helper.environment(SPARK_MASTER="local[2]"))
    return open_engine(folder), lambda name: f"spark:{folder}/{name}.parquet"
