"""Releases that a server makes and shows: long work as jobs, and the folders that they fill.

A job is kept in `serve.db` with its recipe. One of the servers claims it, and renews its claim while it is
at work, so that none is made twice; one that was interrupted is begun again under the charge that it made.
How far a job is gets there at times fixed beforehand (`clock`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core.cost.budget import read_epsilon
from sfumato.core.errors import (
    AccessDenied,
    ChargeKept,
    RecipeError,
    ReleaseError,
    SchemaError,
    SfumatoError,
    SourceError,
    TooManyRequests,
)
from sfumato.core.facts.project import parse_toml
from sfumato.recipes.base import FILE_KEYS
from sfumato.recipes.files import RecipeFile, parse_recipe
from sfumato.serve.clock import next_reply

if TYPE_CHECKING:
    import pyarrow as pa
    from markupsafe import Markup

    from sfumato.curator import Curator
    from sfumato.curator.check import Check
    from sfumato.serve.state import State

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MOST_BEGUN = 20  # of one person, so that nobody fills the queue
_LONGEST_RECIPE = 100_000  # signs
_FIRST_LOOK = 0.5  # seconds until a job first shows how far it is
_CLAIM_SECONDS = 30.0  # after which a server that has died no longer has its jobs
_RENEW_SECONDS = 10.0  # well within the time after which another server takes a job over


@dataclass(slots=True)
class _Job:
    """A job at work, and what it has done, of which the rest learns later."""

    person: str
    name: str
    recipe: str
    status: str = "waiting"
    stages: list[str] = field(default_factory=list)
    message: str | None = None


class Jobs:
    """The releases of a project: those that are there, and those that are being made, one at a time."""

    def __init__(self, curator: Curator, state: State, *, folder: Path) -> None:
        self._curator = curator
        self._state = state
        self._folder = folder
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sfumato-release")
        self._server = secrets.token_hex(8)
        self._live: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def renew(self, curator: Curator) -> None:
        """Makes what begins from now on with another curator."""
        self._curator = curator

    def check(self, recipe: str, *, files: bool) -> Check:
        """Returns the dry run of a recipe, the text of its file; with `files` it may name public ones."""
        file = self._read(recipe, files=files)
        return self._curator.check(file.recipe, epsilon=file.epsilons, delta=file.delta)

    def price(self, check: Check) -> Fraction | None:
        """Returns the epsilon that a release would cost now."""
        delta = self._curator.project.delta
        return Fraction(0) if check.answered or check.begun else read_epsilon(check.plan.costs, delta)

    def sum_open(self, person: str) -> Fraction:
        """Returns the epsilon that releases of a person may cost that are at work; if unknown, the whole."""
        total = Fraction(0)
        for each in self._state.jobs():
            if each["person"] == person and each["status"] in ("waiting", "running"):
                try:
                    price = self.price(self.check(each["recipe"], files=True))
                except SfumatoError:
                    price = None
                total += Fraction(self._curator.budget().total) if price is None else price
        return total

    def add(self, person: str, name: str, recipe: str, *, status: str) -> int:
        """Adds a job, which waits for its turn or for an approval, and returns its number."""
        begun = [each for each in self._state.jobs() if each["status"] in ("waiting", "running", "approval")]
        if sum(each["person"] == person for each in begun) >= _MOST_BEGUN:
            raise TooManyRequests(f"{_MOST_BEGUN} of your releases are waiting; ask again when some are done")
        if not _NAME.fullmatch(name):
            raise RecipeError("a release is named by letters, digits and _ . -, 64 at most")
        # Also where releases stand beside the project file: one must not pass for another.
        if (self._folder / name).exists() or name in self.folders():
            raise ReleaseError(f"there is a release {name!r} already; choose another name")
        return self._state.add_job(person, name=name, recipe=recipe, status=status)

    def start(self, number: int) -> None:
        """Begins a job that waits, or goes on with one that was interrupted, unless another server has it."""
        claimed = self._state.claim_job(number, self._server, seconds=_CLAIM_SECONDS)
        if claimed is None or number in self._live:
            return
        self._live.add(number)
        task = asyncio.get_running_loop().create_task(self._watch_over(number, _Job(*claimed)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def resume(self) -> None:
        """Begins all jobs again that a stop has interrupted, also those of a server that dies later."""
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        while True:
            with contextlib.suppress(SfumatoError):
                live = list(self._live)
                await asyncio.to_thread(self._state.renew_claims, live, self._server, seconds=_CLAIM_SECONDS)
                for record in await asyncio.to_thread(self._state.jobs):
                    if record["status"] in ("waiting", "running"):
                        self.start(record["number"])
            await asyncio.sleep(_RENEW_SECONDS)

    def find(self, number: int) -> dict[str, Any]:
        """Returns one job as it shows."""
        for record in self._state.jobs():
            if record["number"] == number:
                return record
        raise ReleaseError(f"there is no job {number}")

    async def watch(self, number: int) -> AsyncIterator[dict[str, Any]]:
        """Yields a job as it shows, again whenever that changes, until it is done."""
        last: dict[str, Any] | None = None
        while True:
            changed = self._changed
            record = await asyncio.to_thread(self.find, number)
            if record != last:
                last = record
                yield record
            if record["status"] in ("done", "failed", "refused"):
                return
            try:
                await asyncio.wait_for(changed.wait(), 15)
            except TimeoutError:
                yield record  # keeps the connection open through proxies

    async def close(self) -> None:
        """Waits for what was begun; what waits is begun at the next start."""
        if self._renewing is not None:
            self._renewing.cancel()
        waiting = list(self._live)
        self._worker.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(SfumatoError):
            self._state.renew_claims(waiting, self._server, seconds=0)

    def folders(self) -> dict[str, Path]:
        """Returns the releases that are there, by name: made by jobs, or written beside the project file."""
        # One that has just been written shows when its job does.
        jobs = self._state.jobs()
        hidden = {self._folder / job["name"] for job in jobs if job["status"] in ("waiting", "running")}
        found = {}
        for place in (self._curator.project.folder, self._folder):
            for path in sorted(place.iterdir()) if place.is_dir() else ():
                if path in hidden or path.is_symlink() or not path.is_dir():
                    continue
                if (path / "certificate.json").is_file():
                    found[path.name] = path
        return found

    def folder(self, name: str) -> Path:
        """Returns the folder of the release `name`."""
        found = self.folders().get(name)
        if found is None:
            raise ReleaseError(f"there is no release {name[:60]!r}")
        return found

    def describe(self) -> list[dict[str, Any]]:
        """Returns what is released: for each its table, its recipe, its cost and its files."""
        described = []
        for name, path in self.folders().items():
            try:
                certificate = _read_certificate(path)
            except SfumatoError:
                continue  # not one of ours, or edited; `sfumato verify` tells
            plan, total = certificate["plan"], certificate["total"]
            described.append(
                {
                    "name": name,
                    "table": next(iter(plan["table"]), ""),
                    "recipe": plan["recipe"].get("recipe", ""),
                    "by": plan["recipe"].get("by") or _list_columns(plan),
                    "epsilon": total.get("epsilon"),
                    "delta": total.get("delta"),
                    "files": _list_files(certificate),
                }
            )
        return described

    def file(self, name: str, file: str) -> Path:
        """Returns the path of one file of a release."""
        folder = self.folder(name)
        path = folder / file
        # Whatever else somebody has put into the folder, the truth to compare with, say, is not released.
        if file not in _list_files(_read_certificate(folder)) or path.is_symlink() or not path.is_file():
            raise ReleaseError(f"release {name!r} has no file {file[:60]!r}")
        return path

    def report(self, name: str) -> bytes:
        """Returns the report on a release: one page of HTML."""
        from sfumato.report.model import build_model_report, has_model
        from sfumato.report.page import build_report

        folder = self.folder(name)
        return build_model_report(folder) if has_model(folder) else build_report(folder)

    def picture(self, name: str) -> list[tuple[str, Markup]]:
        """Returns the charts of a release, each with what it shows; none where nothing can be drawn."""
        from sfumato.report.plots import draw_release

        try:
            return draw_release(self.folder(name))
        except (RecipeError, LookupError, ValueError):
            return []

    def predict(self, name: str, rows: str) -> pa.Table:
        """Returns what a released model expects of new rows, given as CSV with a header; it costs nothing."""
        from sfumato.learn import open_model
        from sfumato.learn.model import to_columns
        from sfumato.tables.read import read_table

        model = open_model(self.folder(name))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.csv")
            path.write_text(rows)
            try:
                return to_columns(model, read_table(path, side="new data", columns=model.stored))
            except SourceError as error:
                raise RecipeError(str(error)) from None  # of what was sent, not of a table that is kept

    def ask(self, name: str, text: str) -> pa.Table:
        """Returns the answer of a released model, which is public: it costs nothing."""
        from sfumato.release.ask import open_model

        return open_model(self.folder(name)).sql(text).table

    async def _watch_over(self, number: int, job: _Job) -> None:
        loop = asyncio.get_running_loop()
        try:
            work = loop.run_in_executor(self._worker, lambda: self._publish(job))
        except RuntimeError:  # the server is stopping; it is begun again at the next start
            return
        begun, shown, done = loop.time(), "", False
        while not done:
            elapsed = loop.time() - begun
            # A little more than the last time, so that the next one is after it.
            await asyncio.sleep(next_reply(elapsed + 0.001, first=_FIRST_LOOK) - elapsed)
            done = work.done()
            if shown == (shown := f"{job.status} {job.stages} {job.message}"):
                continue
            with contextlib.suppress(SfumatoError):  # it is found to be done when it is begun again
                await asyncio.to_thread(
                    self._state.update_job,
                    number,
                    status=job.status,
                    stages=list(job.stages),
                    message=job.message,
                    server=self._server,
                )
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        self._live.discard(number)

    def _publish(self, job: _Job) -> None:
        """Makes the release; whatever ends it is what the job shows."""

        def stage(text: str) -> None:
            if not job.stages or job.stages[-1] != text:
                job.stages.append(text)

        job.status = "running"
        try:
            file = self._read(job.recipe, files=True)
            self._folder.mkdir(exist_ok=True)
            out = self._folder / job.name
            # A server that lost its claim may still be at it.
            with self._curator.take_turn(f"release {job.name}"):
                # What was begun there is finished; anything else in that place is refused.
                begun = out.exists() and self._curator.kept(out) is not None
                # The name was free: what is whole there was made by a server that could not say so any more.
                if not (out / "certificate.json").is_file():
                    self._curator.release(
                        file.recipe,
                        epsilon=file.epsilons,
                        delta=file.delta,
                        out=out,
                        force=begun,
                        asked_by=job.person,
                        progress=stage,
                    )
            job.status = "done"
        except SourceError as error:
            # Of what failed after a charge, and of where a source is, nothing more is told.
            kept = "the charge is kept" if isinstance(error, ChargeKept) else "nothing was spent"
            job.status, job.message = "failed", f"the table could not be read; {kept}"
        except SfumatoError as error:
            job.status, job.message = "failed", str(error)
        except Exception as error:
            job.status, job.message = "failed", f"stopped by {type(error).__name__}; the log has more"

    def _read(self, recipe: str, *, files: bool) -> RecipeFile:
        """Returns the recipe in a text; with `files` it may name public ones, in the project's folder."""
        if len(recipe) > _LONGEST_RECIPE:
            raise RecipeError(f"a recipe has at most {_LONGEST_RECIPE:,} characters")
        try:
            document = parse_toml(recipe, what="the recipe")
        except SchemaError as error:
            raise RecipeError(str(error)) from None
        home = self._curator.project.folder
        for key in FILE_KEYS:
            named = document.get(key)
            if not isinstance(named, str):
                continue
            if not files:
                raise AccessDenied(f"only a steward's recipe names a file of the server ({key} = ...)")
            if home not in (home / named).resolve().parents:
                raise AccessDenied(f"{key} = {named[:60]!r} is not in the project's folder")
        return parse_recipe(document, folder=home)


def _list_columns(plan: Mapping[str, Any]) -> list[str]:
    """Returns the columns that a release without keys is about."""
    specs = (spec for spec in plan["table"].values() if isinstance(spec, Mapping))
    return [name for spec in specs for name in spec.get("columns", ())]


def _read_certificate(folder: Path) -> Mapping[str, Any]:
    from sfumato.release.folder import open_folder

    return open_folder(folder, load=()).certificate


def _list_files(certificate: Mapping[str, Any]) -> list[str]:
    """Returns the files of a release: its certificate, and those that it names."""
    return sorted(["certificate.json", *certificate["files"]])
