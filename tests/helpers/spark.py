"""Spark for tests: what is missing, settings for small tables, and a cluster of real processes.

The cluster is a master and workers of the jars that come with pyspark, each a process of its own on this
machine. All of them are ended for certain, whatever a test does.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

# Tables of tests are small: compiling a query takes longer than running it.
SMALL = (
    "--conf spark.sql.shuffle.partitions=2 --conf spark.sql.adaptive.enabled=false "
    "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN "
    "--conf spark.driver.memory=1g --conf spark.executor.memory=512m "
    "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' "
    "pyspark-shell"
)


def why_missing(*, connect=False):
    """Why there is no Spark here, or None if there is one."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'sfumato[spark]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java" if home is None else f"{home}/bin/java") is None:
        return "there is no Java: Spark needs Java 17"
    if connect and importlib.util.find_spec("grpc") is None:
        return "grpcio is not installed: pip install 'sfumato[spark]'"
    return None


def environment(**more):
    """The settings of a process that uses Spark here."""
    settings = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": SMALL,
    }
    return {**settings, **more}


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Cluster:
    """A master and its workers."""

    url: str
    master: subprocess.Popen
    workers: list = field(default_factory=list)


@contextlib.contextmanager
def start_cluster(*, workers=2):
    """A standalone cluster; `cluster.workers` are its processes, to be killed at will."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        port = free_port()
        master = _start(
            stack, folder, "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0",
        )  # fmt: skip
        cluster = Cluster(f"spark://127.0.0.1:{port}", master)
        wait_for(lambda: _listens(port), "the master does not listen")
        for number in range(workers):
            process = _start(
                stack, folder, f"worker{number}", "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g",
                "--work-dir", str(folder / f"work{number}"), cluster.url,
            )  # fmt: skip
            cluster.workers.append(process)
        for number in range(workers):
            log = folder / f"worker{number}.log"
            wait_for(lambda log=log: "Successfully registered" in log.read_text(), "no worker registered")
        yield cluster


@contextlib.contextmanager
def start_connect():
    """The address of a Spark Connect server of its own process."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        port = free_port()
        script = (
            "import sys, time; from pyspark.sql import SparkSession\n"
            "SparkSession.builder.master('local[2]').config('spark.plugins', "
            "'org.apache.spark.sql.connect.SparkConnectPlugin').config('spark.connect.grpc.binding.port', "
            f"'{port}').config('spark.ui.enabled', 'false').getOrCreate()\n"
            "sys.stdin.read()\n"
        )
        _launch(stack, folder, "connect", [sys.executable, "-c", script], stdin=subprocess.PIPE)
        wait_for(lambda: _listens(port), "the Connect server does not listen", seconds=90)
        yield f"sc://127.0.0.1:{port}"


def wait_for(condition, complaint, *, seconds=60):
    """Waits until `condition` holds."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(complaint)
        time.sleep(0.05)


def executors(cluster):
    """The processes that run tasks, as the children of the workers."""
    return [child for worker in cluster.workers if worker.poll() is None for child in children(worker.pid)]


def children(pid):
    """The processes that `pid` started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            parent = re.search(r"^PPid:\s+(\d+)", status.read_text(), re.MULTILINE)
            if parent and int(parent[1]) == pid:
                found.append(int(status.parent.name))
    return found


def kill(worker):
    """Ends a worker and what runs its tasks at once, as a machine that goes down does."""
    doomed = [*children(worker.pid), worker.pid]
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    worker.wait()


def _home():
    import pyspark

    return Path(pyspark.__file__).parent


def _scala():
    (core,) = (_home() / "jars").glob("spark-core_*.jar")
    return core.name.split("_")[1].split("-")[0]


def _start(stack, folder, name, *arguments):
    jars = _home() / "jars"
    java = "java" if "JAVA_HOME" not in os.environ else f"{os.environ['JAVA_HOME']}/bin/java"
    opened = [
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.nio", "java.util", "sun.nio.ch", "java.util.concurrent")
    ]
    command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opened]
    return _launch(stack, folder, name, [*command, "-cp", f"{jars}/*", *arguments])


def _launch(stack, folder, name, command, **options):
    log = stack.enter_context((folder / f"{name}.log").open("w"))
    process = subprocess.Popen(
        command,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment(), "SPARK_HOME": str(_home()), "SPARK_SCALA_VERSION": _scala()},
        start_new_session=True,
        **options,
    )
    stack.callback(_end, process)
    return process


def _end(process):
    # The group of the process: what it started, and nothing else.
    for each in children(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
