"""Sessions of Spark and tables as it sees them: how both are found, and how a job is run within limits.

Nothing that Spark says is shown: its messages and logs may quote a record. What fails is told in fixed
sentences. A job that gets no resources is given up after SFUMATO_SPARK_TIMEOUT seconds, 60 by default.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa

from sfumato.core.engine.base import Fetched, name_source
from sfumato.core.engine.encode import Stored
from sfumato.core.engine.source import describe_stored
from sfumato.core.errors import SfumatoError, SourceError
from sfumato.servers.engine import refuse_twins, wanted_columns
from sfumato.servers.spark import workers
from sfumato.servers.spark.encode import describe_type, quote_spark_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sfumato.core.facts.table import Table


Result = TypeVar("Result")
_SAID: dict[str, dict[str, str]] = tomllib.loads(
    files("sfumato.servers").joinpath("spark.toml").read_text("utf-8")
)

_POLL = 0.05  # seconds between two looks at a job
_REACH_SECONDS = 5.0  # Spark itself would try for minutes
_DEEPEST = 10  # causes of an error that are looked at


def time_limit() -> float:
    """Returns the seconds that a job may wait for resources."""
    try:
        return max(1.0, float(os.environ.get("SFUMATO_SPARK_TIMEOUT", "60")))
    except ValueError:
        raise SourceError("SFUMATO_SPARK_TIMEOUT must be a number of seconds") from None


class SparkRoom:
    """A session with pinned settings of its own, and the one place where jobs are run."""

    def __init__(self, session: SparkSession, *, remote: bool, local: bool) -> None:
        self.session = session
        self.lock = threading.RLock()
        """Held while views with fixed names are in use."""
        self.is_remote = remote
        self._local = local
        for key, value in _SAID["pinned"].items():
            session.conf.set(key, value)
        if remote:
            self._probe()

    @property
    def alive(self) -> bool:
        """Whether jobs can still be run."""
        try:
            if self.is_remote:
                return not getattr(self.session, "is_stopped", False)
            context = self.session.sparkContext
            return context._jsc is not None and not bool(context._jsc.sc().isStopped())
        except Exception:
            return False

    def run(self, job: Callable[[], Result], *, what: str, limit: float | None = None) -> Result:
        """Returns what `job` returns, or an error in fixed words about `what`.

        The job runs in a thread of its own, so that it can be stopped: by the user, after `limit` seconds,
        or when a cluster has had no worker for as long as a job may wait.
        """
        tag = f"sfumato-{uuid4().hex}"
        outcome: list[Any] = []

        def work() -> None:
            try:
                if self.is_remote:
                    self.session.addTag(tag)
                else:
                    self.session.sparkContext.setJobGroup(tag, "sfumato", interruptOnCancel=True)
                outcome.append((True, job()))
            except BaseException as error:  # it is raised again, in other words, where it is waited for
                outcome.append((False, error))

        thread = threading.Thread(target=work, daemon=True, name=tag)
        with _without_warnings():
            self._wait(thread, tag, what=what, limit=limit)
        done, result = outcome[0]
        if done:
            return cast("Result", result)
        if isinstance(result, SfumatoError):
            raise result
        raise SourceError(f"{what} {_explain(result)}") from None

    def _wait(self, thread: threading.Thread, tag: str, *, what: str, limit: float | None) -> None:
        thread.start()
        began = idle_since = time.monotonic()
        patience = time_limit()
        try:
            while thread.is_alive():
                thread.join(_POLL)
                now = time.monotonic()
                if self._count_workers():
                    idle_since = now
                if now - idle_since > patience or (limit is not None and now - began > limit):
                    self._cancel(tag)
                    raise SourceError(_no_workers(what, patience))
        except KeyboardInterrupt:
            self._cancel(tag)
            raise

    def stop(self) -> None:
        """Ends the session, and with it an application that this process started."""
        with suppress(Exception):
            self.session.stop()

    def _count_workers(self) -> int:
        if self.is_remote or self._local:
            return 1
        try:
            return int(self.session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1
        except Exception:
            return 0

    def _cancel(self, tag: str) -> None:
        with suppress(Exception):
            if self.is_remote:
                self.session.interruptTag(tag)
            else:
                self.session.sparkContext.cancelJobGroup(tag)

    def _probe(self) -> None:
        # The workers behind a server cannot be counted from here, but without one nothing is ever done.
        self.run(
            lambda: self.session.range(1).selectExpr("id + 1").collect(),
            what="Spark",
            limit=time_limit(),
        )


def open_room() -> SparkRoom:
    """The session of this process: Spark Connect at SPARK_REMOTE, else the master SPARK_MASTER, else local.

    It is started once and kept; another address in the environment takes its place.
    """
    return _KEEPER.open()


class _Keeper:
    """The one session of a process; Spark has no room for two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[str | None, str | None] | None = None
        self._room: SparkRoom | None = None

    def open(self) -> SparkRoom:
        key = (os.environ.get("SPARK_REMOTE"), os.environ.get("SPARK_MASTER"))
        with self._lock:
            if self._room is not None and self._key == key and self._room.alive:
                return self._room
            if self._room is not None:
                self._room.stop()
                self._room = None
            try:
                with _without_warnings():
                    self._room = _connect(key[0]) if key[0] else _start(key[1])
            except SfumatoError:
                raise
            except Exception as error:
                words = _explain(error)
                if words == _FAILED:
                    words = "could not be started, or its cluster turned it away; its logs say why"
                raise SourceError(f"Spark {words}") from None
            self._key = key
            return self._room


_KEEPER = _Keeper()


@contextmanager
def _without_warnings() -> Iterator[None]:
    # Spark warns of libraries that are newer than itself; what is used of them here is tested.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _connect(remote: str) -> SparkRoom:
    _reach(remote, "SPARK_REMOTE", default=15002)
    SparkSession = _import_session()
    return SparkRoom(SparkSession.builder.remote(remote).create(), remote=True, local=False)


def _start(master: str | None) -> SparkRoom:
    SparkSession = _import_session()
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if master is not None and master.startswith("spark://"):
        _reach(master, "SPARK_MASTER", default=7077)
    running = SparkSession.getActiveSession()
    if running is None:
        _find_java()
        conf = SparkConf(loadDefaults=False)
        for key, value in _SAID["started"].items():
            conf.set(key, value)
        conf.setMaster(master or _default_master())
        if str(conf.get("spark.master")).startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # What the launcher and the logs of the driver print goes nowhere.
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        launch: Any = launch_gateway
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=launch(conf, silent), conf=conf)
        running = SparkSession.builder.config(conf=conf).getOrCreate()
    session = running.newSession()
    local = str(session.sparkContext.master).startswith("local")
    if local and "spark.sql.shuffle.partitions" not in dict(session.sparkContext.getConf().getAll()):
        # The default is for a cluster; more parts than this cost more than they bring on one machine.
        session.conf.set("spark.sql.shuffle.partitions", str(8 * (os.cpu_count() or 1)))
    return SparkRoom(session, remote=False, local=local)


def _default_master() -> str:
    """Returns the master of spark-defaults.conf if there is one, else all processors of this machine."""
    from pyspark.find_spark_home import _find_spark_home

    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")
    with suppress(OSError), (folder / "spark-defaults.conf").open(encoding="utf-8") as lines:
        for line in lines:
            words = line.replace("=", " ").split()
            if len(words) >= 2 and words[0] == "spark.master":
                return words[1]
    return "local[*]"


def _import_session() -> type[SparkSession]:
    try:
        import pyspark.cloudpickle
        from pyspark.sql import SparkSession
    except ImportError:
        raise SourceError("reading from Spark needs pyspark: pip install 'sfumato[spark]'") from None
    from pyspark.logger import PySparkLogger

    # They would print the message of a failed query, which may quote a record.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    # Workers do not have this package, so that what they run is sent to them whole.
    send_whole: Any = pyspark.cloudpickle.register_pickle_by_value
    send_whole(workers)
    found: type[SparkSession] = SparkSession
    return found


def _find_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java") if home is None else shutil.which(str(Path(home) / "bin" / "java"))
    if found is None:
        raise SourceError(
            "Spark needs Java 17 or newer, and none was found; install it or set JAVA_HOME, or name a "
            "Spark Connect server in SPARK_REMOTE"
        )


def _reach(url: str, variable: str, *, default: int) -> None:
    """Raises an error at once where Spark would try for minutes."""
    addresses = url.split("://", 1)[-1].split("/", 1)[0].split(",")
    for address in addresses:
        parts = urlsplit(f"//{address}")
        try:
            port = parts.port or default
        except ValueError:
            break
        with suppress(OSError), socket.create_connection((parts.hostname or "", port), _REACH_SECONDS):
            return
    raise SourceError(
        f"Spark cannot be reached at the address in {variable}; is it running, and is this its address?"
    )


def _no_workers(what: str, seconds: float) -> str:
    return (
        f"{what}: the cluster gave no worker for {seconds:g} seconds, so nothing was run; start workers, "
        "free some, or wait longer (SFUMATO_SPARK_TIMEOUT, in seconds)"
    )


_FAILED = "could not be read to the end: its Spark job failed"


def _explain(error: BaseException) -> str:
    """Returns what went wrong, by its kind alone: its own words may hold a value."""
    conditions = _conditions(error)
    for known, words in _SAID["conditions"].items():
        if any(known in condition.split(".") for condition in conditions):
            return words
    if type(error).__name__ in ("SparkConnectGrpcException", "RetriesExceeded", "_InactiveRpcError"):
        return "lost its connection to the Spark server"
    return _FAILED


def _conditions(error: BaseException) -> list[str]:
    """Returns the names that Spark has for what went wrong, of an error and of those that caused it."""
    found: list[str] = []
    cause: Any = getattr(error, "java_exception", None) or error
    while cause is not None and len(found) < _DEEPEST:
        name = None
        with suppress(Exception):
            name = cause.getCondition()
        found.append(str(name))
        following = None
        with suppress(Exception):
            following = cause.getCause()
        cause = following
    return found


PREFIX = "spark:"
_AHEAD = 4  # batches that wait here


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A table as Spark sees it: its rows, its stored columns, and what its version follows from.

    The rows are those of the files that were listed when it was found: files that come later are not read.
    With `is_steady`, every job sees the same rows: not of views, which may compute anything, nor of other
    databases.
    """

    room: SparkRoom
    frame: DataFrame
    columns: dict[str, Stored]
    facts: tuple[str, ...]
    is_steady: bool = False


def is_path(source: str) -> bool:
    """Returns whether `source` names Parquet on shared storage, and not a table of the catalog.

    >>> is_path("spark:s3a://bucket/taxi/*.parquet"), is_path("spark:main.city.taxi")
    (True, False)
    """
    return "/" in source or source.lower().endswith(".parquet")


def find_source(
    room: SparkRoom, table: Table, *, folder: Path, known: SparkSource | None = None
) -> SparkSource:
    """Returns the source of `table`, described by the catalog and the footers of files alone.

    It is the one that is `known` if that was found in the same session and nothing changed since.
    """
    name = name_source(table)
    address = table.source.removeprefix(PREFIX)

    def find() -> SparkSource:
        if is_path(table.source):
            same = known if known is not None and known.room is room else None
            return _find_files(room, _absolute(address, folder), name, same)
        return _find_table(room, address, name)

    return room.run(find, what=name)


def fetch_columns(source: SparkSource, table: Table, wanted: frozenset[str]) -> Fetched:
    """Returns the columns `wanted` of a table and the one that names individuals, as Arrow types."""
    from pyspark.sql.pandas.types import to_arrow_type

    names = wanted_columns(source.columns, wanted, table.unit.column)
    types = {
        field.name: to_arrow_type(field.dataType, timezone="UTC")
        for field in source.frame.schema.fields
        if source.columns[field.name].kind != "other"
    }
    columns = {
        name: describe_stored(types[name]) if name in types else Stored("other") for name in source.columns
    }
    schema = pa.schema([(name, types[name]) for name in names])

    def read() -> Iterator[pa.RecordBatch]:
        chosen = [quote_spark_name(name) for name in names] or ["1 AS one"]
        return _stream(source, chosen, name_source(table))

    return Fetched(columns, schema if names else pa.schema([("one", pa.int32())]), read)


def _absolute(address: str, folder: Path) -> str:
    """Gives the path that Spark reads; one without a scheme or a leading slash is looked up from `folder`."""
    return address if "://" in address or address.startswith("/") else str(folder / address)


def _find_files(room: SparkRoom, path: str, name: str, known: SparkSource | None) -> SparkSource:
    files = _list_files(room.session, [path])
    if not files:
        raise SourceError(f"{name} has no files")
    if known is not None and known.facts == tuple(files):
        return known
    paths = [_escape(file.split("|", 1)[1]) for file in files]
    # Merging looks at every footer, so that a file with other types is found before it is counted.
    reader = room.session.read.option("mergeSchema", "true")
    if not any(sign in path for sign in "*?[{") and not path.endswith(".parquet"):
        reader = reader.option("basePath", path)  # columns in the names of folders count as columns
    frame = reader.parquet(*paths)
    return SparkSource(room, frame, _describe(frame, name), tuple(files), is_steady=True)


def _find_table(room: SparkRoom, address: str, name: str) -> SparkSource:
    session = room.session
    frame = session.table(address)
    columns = _describe(frame, name)
    facts = [address, *(f"{column} {stored.type}" for column, stored in columns.items())]
    files = sorted(set(frame.inputFiles()))
    if files:
        facts += _list_files(session, [_escape(file) for file in files])
    else:
        facts += _describe_table(session, address)
    is_table = session.catalog.getTable(address).tableType in ("MANAGED", "EXTERNAL")
    return SparkSource(room, frame, columns, tuple(facts), is_steady=bool(files) and is_table)


def _list_files(session: SparkSession, paths: list[str]) -> list[str]:
    """Size, time and path of every file, in a fixed order. No file is opened."""
    listing = session.read.format("binaryFile").option("recursiveFileLookup", "true").load(paths)
    rows = listing.selectExpr("path", "length", "unix_micros(modificationTime) AS changed").collect()
    return sorted(f"{row['length']};{row['changed']}|{row['path']}" for row in rows)


def _describe_table(session: SparkSession, address: str) -> list[str]:
    rows = session.sql(f"DESCRIBE TABLE EXTENDED {address}").collect()
    # What changes when a table is merely looked at is no part of its version.
    return [
        f"{row['col_name']}|{row['data_type']}"
        for row in rows
        if row["col_name"] not in ("Last Access", "Statistics")
    ]


def _describe(frame: DataFrame, name: str) -> dict[str, Stored]:
    refuse_twins((field.name for field in frame.schema.fields), where=name)
    return {field.name: describe_type(field.dataType.simpleString()) for field in frame.schema.fields}


def _escape(path: str) -> str:
    """Returns `path` such that Spark takes it for itself and not for a pattern."""
    return "".join(f"\\{sign}" if sign in "\\*?[]{}" else sign for sign in path)


def _stream(source: SparkSource, chosen: list[str], what: str) -> Iterator[pa.RecordBatch]:
    """Batches as they come: a few of them wait here, and one part of the table on the driver."""
    waiting: Queue[pa.RecordBatch | BaseException | None] = Queue(_AHEAD)
    given_up = threading.Event()

    def job() -> None:
        packed = source.frame.selectExpr(*chosen).mapInArrow(workers.pack_batches, "b BINARY")
        for row in packed.toLocalIterator(prefetchPartitions=True):
            with pa.ipc.open_stream(bytes(row[0])) as reader:
                for batch in reader:
                    waiting.put(batch)
            if given_up.is_set():
                return

    def run() -> None:
        try:
            source.room.run(job, what=what)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while True:
            item = waiting.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        given_up.set()
        while thread.is_alive():
            while not waiting.empty():
                waiting.get()
            thread.join(0.05)
