"""A headless browser over the DevTools protocol: JSON messages on two pipes, standard library alone."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)
LISTENED = (
    "Network.requestWillBeSent",
    "Runtime.exceptionThrown",
    "Runtime.consoleAPICalled",
    "Log.entryAdded",
)


def find_browser():
    """The path of an installed browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab of a headless browser; as a context manager it ends the process it started."""

    def __init__(self, *, timeout=60):
        self.timeout = timeout
        self.scripted = True  # pages that may run no scripts draw no frame for us either

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Copies with high numbers: one end may already have the number 3 or 4, which the browser wants.
        reading, writing = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out))
        path = find_browser()
        self._pid = os.posix_spawn(
            path,
            [path, *OPTIONS, f"--user-data-dir={self._folder.name}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, reading, 3),
                (os.POSIX_SPAWN_DUP2, writing, 4),
            ],
            setpgroup=0,
        )
        for end in (theirs_in, theirs_out, reading, writing):
            os.close(end)
        self._in, self._out, self._rest, self._last, self.events = ours_in, ours_out, b"", 0, []
        self._session = None
        target = self._find_page()
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{room}.enable")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def _find_page(self):
        until = time.monotonic() + self.timeout
        while time.monotonic() < until:
            for each in self.call("Target.getTargets")["targetInfos"]:
                if each["type"] == "page":
                    return each["targetId"]
            time.sleep(0.05)
        raise TimeoutError("the browser opened no page")

    def call(self, method, **parameters):
        """The result of one command; events that arrive meanwhile are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return answer["result"]

    def _read(self):
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], self.timeout)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._in, 2**20)
            if not piece:
                raise RuntimeError("the browser has gone")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path, *, width, height=900, dark=False, media=""):
        """Loads the file at `path` in a window of that size and waits until it is drawn."""
        self.visit(Path(path).resolve().as_uri(), width=width, height=height, dark=dark, media=media)

    def visit(self, url, *, width, height=900, dark=False, media=""):
        """Loads the page at `url` in a window of that size and waits until it is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.events.clear()
        self.call("Page.navigate", url=url)
        self._wait_for_load()

    def follow(self, expression):
        """Runs what leads to another page, such as a click on a button, and waits until that is drawn."""
        self.events.clear()
        self.evaluate(f"void ({expression})")
        self._wait_for_load()

    def _wait_for_load(self):
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._read()
        if self.scripted:
            with contextlib.suppress(RuntimeError):  # a page that loads itself again meanwhile
                self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, expression):
        """The value of a JavaScript expression; a promise is awaited."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def heard(self):
        """What the page asked for or complained of, without its own address."""
        asked, faults = [], []
        for event in self.events:
            if event["method"] == "Network.requestWillBeSent":
                asked.append(event["params"]["request"]["url"])
            elif event["method"] in LISTENED:
                faults.append(event)
        return [url for url in asked if not url.startswith("data:")], faults

    def screenshot(self, *, clip=None):
        """The page as a PNG file, or the part (x, y, width, height) of it."""
        options = {"captureBeyondViewport": True, "format": "png"}
        if clip is not None:
            options["clip"] = dict(zip(("x", "y", "width", "height"), clip, strict=True), scale=1)
        return base64.b64decode(self.call("Page.captureScreenshot", **options)["data"])

    def pdf(self):
        """The page as it would be printed."""
        told = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(told["data"])
