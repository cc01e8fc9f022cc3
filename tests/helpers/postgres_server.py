"""A PostgreSQL server of the tests' own: in a temporary folder, on a private socket, with a password."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import quote

USER, PASSWORD = "keeper", "a secret of the tests"


def find_binaries():
    """The folder of initdb and pg_ctl, of the newest version if there are several; None without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    named = shutil.which("initdb")
    path = found[-1] if found else Path(named) if named else None
    return None if path is None else path.resolve().parent


def why_missing():
    """Why no server can be started here, or nothing."""
    if find_binaries() is None:
        return "PostgreSQL's server is not installed"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user to run it as"
    return ""


class Server:
    """A running server; `stop` it when done."""

    def __init__(self):
        self.binaries = find_binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="sfumato-pg-"))
        self._numbers = count(1)
        words = self.folder / "password"
        words.write_text(PASSWORD)
        for path in (self.folder, words):
            if os.geteuid() == 0:
                os.chown(path, _user().pw_uid, _user().pw_gid)
        self._run(
            "initdb", "--auth=scram-sha-256", f"--username={USER}", f"--pwfile={words}",
            "--encoding=UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        self.start()

    def start(self):
        options = f"-k {self.folder} -c listen_addresses='' -c max_connections=60"
        self._run("pg_ctl", "-w", "-l", self.folder / "log", "-o", options, "start")

    def halt(self, *, mode):
        """Stops the server; `immediate` is a crash: nothing is written that is not yet on disk."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def stop(self):
        """Stops the server and removes all of it."""
        with suppress(subprocess.CalledProcessError):  # a test may have halted it
            self.halt(mode="immediate")
        shutil.rmtree(self.folder)

    def url(self, *, schema=None, user=USER, database="postgres"):
        """A URL without the password, which is to be in PGPASSWORD."""
        schema = schema or f"ledger_{next(self._numbers)}"
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}&schema={schema}"

    def connect(self, **changes):
        """A connection of the owner, outside of any ledger."""
        import psycopg

        facts = {"host": str(self.folder), "user": USER, "password": PASSWORD, "dbname": "postgres"}
        return psycopg.connect(**facts | changes, autocommit=True)

    def execute(self, *statements, **changes):
        """The rows of the last statement."""
        with self.connect(**changes) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def configure(self, name, value):
        """Sets or, with None, resets a setting of the whole server."""
        change = f"RESET {name}" if value is None else f"SET {name} = {value}"
        loaded = "SELECT pg_conf_load_time()"
        before = self.execute(loaded)
        self.execute(f"ALTER SYSTEM {change}", "SELECT pg_reload_conf()")
        while self.execute(loaded) == before:  # of a new connection, which has what the server has
            time.sleep(0.05)

    def _run(self, program, *arguments):
        user = {"user": _user().pw_uid, "group": _user().pw_gid} if os.geteuid() == 0 else {}
        subprocess.run(
            [self.binaries / program, "-D", self.folder / "data", *arguments],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder, **user,
        )  # fmt: skip


def _user():
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    return None
