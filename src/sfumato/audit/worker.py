"""A process that runs a mechanism for an audit, so that one that hangs, dies or prints does no harm.

Started as `python -m sfumato.audit.worker`. It reads a job and then sides from its input, and writes an
observation for each to its output; what the mechanism prints goes to nowhere.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from sfumato.audit.observe import Observation, observe, observe_error
from sfumato.errors import AuditError

_LENGTH = 8


def run_once(mechanism: Callable[[Any], Any], table: Any) -> Observation:  # noqa: ANN401 - any table
    """What one run shows: its output, or the error it raised.

    >>> sorted(run_once(lambda table: 1 / len(table), []).words)[0]
    'error'
    """
    try:
        output = mechanism(table)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: an exit is something to see
        return observe_error(error)
    return observe(output)


def load_name(where: str) -> Any:  # noqa: ANN401 - whatever the file holds under the name
    """What the file and name of `where`, such as "release.py:noisy_count", stand for."""
    file, _, name = where.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or not path.is_file():
        raise AuditError(f"{where!r} must be FILE.py:NAME of a Python file that exists")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"audited_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise AuditError(f"{path.name!r} cannot be loaded; give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AuditError(
            f"{path.name!r} cannot be loaded: {type(error).__name__}: {str(error)[:200]}"
        ) from None
    if not hasattr(module, name):
        raise AuditError(f"{path.name!r} has no {name!r}")
    return getattr(module, name)


def convert_table(path: str, kind: str) -> Any:  # noqa: ANN401 - as the mechanism wants it
    """The table in the file at `path`, as `kind`: "arrow", "rows", "pandas", "polars" or "path"."""
    if kind == "path":
        return path
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path) if path.lower().endswith(".parquet") else pa_csv.read_csv(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise AuditError(f"{Path(path).name!r} cannot be read as a table ({type(error).__name__})") from None
    if kind == "rows":
        return table.to_pylist()
    if kind == "arrow":
        return table
    try:
        if kind == "pandas":
            return table.to_pandas()
        return importlib.import_module("polars").from_arrow(table)
    except ImportError:
        raise AuditError(f"tables as {kind} need {kind} to be installed") from None


def read_message(stream: IO[bytes]) -> Any:  # noqa: ANN401 - what the other end sent
    """The next object on `stream`, or None at its end."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    body = stream.read(int.from_bytes(head, "big"))
    return pickle.loads(body)


def write_message(stream: IO[bytes], message: object) -> None:
    """Sends `message` to the other end of `stream`."""
    body = pickle.dumps(message)
    stream.write(len(body).to_bytes(_LENGTH, "big") + body)
    stream.flush()


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answers sides with observations until the input ends."""
    job = read_message(source)
    if job is None:
        return
    try:
        _limit_memory(job.get("memory"))
        mechanism = load_name(job["where"]) if "where" in job else pickle.loads(job["mechanism"])
        if "neighbours" in job:
            pair = load_name(job["neighbours"])
            tables = pair() if callable(pair) else pair
        elif "files" in job:
            tables = tuple(convert_table(path, job["kind"]) for path in job["files"])
        else:
            tables = pickle.loads(job["tables"])
        _check_job(mechanism, tables)
    except BaseException as error:
        write_message(sink, {"failed": f"{type(error).__name__}: {str(error)[:500]}"})
        return
    write_message(sink, {"ready": True})
    while (side := read_message(source)) is not None:
        write_message(sink, run_once(mechanism, tables[side]))


def _check_job(mechanism: object, tables: Sequence[object]) -> None:
    if not callable(mechanism) or len(tables) != 2:
        raise AuditError("a mechanism must be callable, and neighbours must be two tables")


def _limit_memory(megabytes: int | None) -> None:
    if megabytes is None:
        return
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def main() -> None:
    """Serves the process that started this one."""
    sink = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    source = os.fdopen(os.dup(0), "rb")
    os.dup2(null, 0)
    serve(source, sink)


if __name__ == "__main__":
    main()
