"""`sfumato serve` as a process of its own, as a user starts it."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

from helpers.cli import run_main

PASSWORD = "a password of the tests"


class Served:
    """A running server in `folder`; `preload` is Python that its process runs first."""

    def __init__(self, folder, *, preload="", options=(), env=None):
        code = f"{preload}\nfrom sfumato.__main__ import start\nstart()"
        arguments = ["serve", "--http-port", "0", "--pg-port", "0", "--json", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(self.process.stderr.read())
            text += line
        self.addresses = json.loads(text)
        self.page = self.addresses["page"]
        self._drains = [
            threading.Thread(target=stream.read, daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for drain in self._drains:
            drain.start()

    def dsn(self, user="ana", *, password=PASSWORD, **more):
        facts = {"host": "127.0.0.1", "port": self.addresses["pg_port"], "user": user, "dbname": "visits"}
        return " ".join(f"{key}='{value}'" for key, value in {**facts, "password": password, **more}.items())

    def post(self, path, body, *, token):
        """The JSON that the API answers, or what it refuses with."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.page + path, data=json.dumps(body).encode(), headers=headers)
        try:
            with urllib.request.urlopen(request) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def stop(self, number=signal.SIGTERM):
        """Ends the process and gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=120)
        for drain in self._drains:
            drain.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@contextmanager
def serve(folder, **more):
    """A server that is stopped at the end as a service manager does it, if it was not before."""
    served = Served(folder, **more)
    try:
        yield served
    finally:
        if not served.process.stdout.closed:
            assert served.stop() in (0, -signal.SIGKILL)


def add_user(folder, name="ana", *, role="analyst", share="1"):
    """The token of a new person with the password of the tests."""
    more = ["--share", share] if role == "analyst" else []
    facts = [name, "--role", role, *more, "--password-stdin", "--json"]
    return json.loads(run_main("user", "add", *facts, cwd=folder, text=PASSWORD).stdout)["token"]
