"""Two servers on one ledger in PostgreSQL are one, also where the way to it is cut."""

import contextlib
import json
import shutil
import socket
import threading
import time

import pytest

from helpers.cli import run_main
from helpers.served import add_user, serve

psycopg = pytest.importorskip("psycopg", reason="`make engines` installs psycopg")


def ask(number):
    return f"DP-SELECT 0.01 COUNT(*) AS n FROM visits WHERE fee > {number}"


class Cable:
    """The way of one server to the database: a socket of its own, which can be cut and mended."""

    def __init__(self, folder, target):
        self.folder, self._target = folder, target
        folder.mkdir()
        self._path = folder / ".s.PGSQL.5432"
        self._lines, self._guard = set(), threading.Lock()
        self.before_commit = False
        self.mend()

    def mend(self):
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self._path))
        self._door.listen(64)
        threading.Thread(target=self._accept, args=(self._door,), daemon=True).start()

    def cut(self):
        self._path.unlink(missing_ok=True)
        self._door.close()
        with self._guard:
            for line in self._lines:
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def _accept(self, door):
        with contextlib.suppress(OSError):
            while True:
                near = door.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._target))
                with self._guard:
                    self._lines |= {near, far}
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other, one is near), daemon=True).start()

    def _carry(self, one, other, asks):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
                if asks and self.before_commit and b"COMMIT" in data:
                    self.before_commit = False
                    self.cut()  # the database has it, and nobody hears so
        for line in (one, other):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def parted(folder, server, tmp_path):
    """Two folders with the same table, and the cables of their servers to one database."""
    url, cables, places = server.url(), [], []
    for name in ("one", "two"):
        place = tmp_path / name
        place.mkdir()
        shutil.copy(folder / "visits.parquet", place)
        cable = Cable(tmp_path / f"to-{name}", server.folder / ".s.PGSQL.5432")
        here = url.replace(str(server.folder).replace("/", "%2F"), str(cable.folder).replace("/", "%2F"))
        assert here != url
        project = (folder / "sfumato.toml").read_text().replace("[budget]", f'[budget]\nledger = "{here}"')
        (place / "sfumato.toml").write_text(project)
        cables.append(cable)
        places.append(place)
    add_user(places[0], share="5")
    yield places, cables
    for cable in cables:
        cable.cut()


def list_spent(place):
    """What was charged, by what was asked."""
    charges = json.loads(run_main("budget", "--json", cwd=place).stdout)["charges"]
    return [each["by"] for each in charges]


def test_people_of_one_are_those_of_the_other(parted):
    places, _ = parted
    with serve(places[0]) as one, serve(places[1]) as other:
        token = add_user(places[1], "ben")
        assert one.post("/api/sql", {"sql": ask(1)}, token=token)["spent"] == 0.01
        assert other.post("/api/sql", {"sql": ask(1)}, token=token)["spent"] == 0
        run_main("user", "remove", "ben", cwd=places[0])
        for served in (one, other):
            assert served.post("/api/sql", {"sql": ask(1)}, token=token)["error"]["kind"] == "NotSignedIn"


@pytest.mark.slow
def test_a_partition_ends_in_refusals_and_never_in_double_charges(parted):
    places, cables = parted
    answered, refused, stop = set(), [], threading.Event()
    numbers, guard = iter(range(10**6)), threading.Lock()

    def work(served):
        number = None
        while not stop.is_set():
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(served.dsn(), autocommit=True, connect_timeout=20) as line,
            ):
                while not stop.is_set():
                    if number is None:
                        with guard:
                            number = next(numbers)
                    line.execute(ask(number)).fetchall()
                    answered.add(number)
                    number = None
            if not stop.is_set():
                refused.append(number)  # and asked again
                time.sleep(0.05)

    with serve(places[0]) as one, serve(places[1]) as other:
        threads = [threading.Thread(target=work, args=(each,)) for each in (one, other) for _ in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(8):
            cable = cables[turn % 2]
            known = len(answered)
            while len(answered) < known + 4:
                time.sleep(0.02)
            if turn < 4:
                cable.cut()
            else:
                cable.before_commit = True
                deadline = time.monotonic() + 20
                while cable.before_commit and time.monotonic() < deadline:
                    time.sleep(0.02)
                assert not cable.before_commit
            time.sleep(0.3)
            cable.mend()
        known = len(answered)
        while len(answered) < known + 8:
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        assert refused
        charged = list_spent(places[0])
        assert len(charged) == len(set(charged))
        assert len(answered) <= len(charged) <= len(answered) + len(threads)
