"""A stand-in for the service, with three users and a curator of its own."""

import asyncio
import re
import secrets
from dataclasses import dataclass, field
from fractions import Fraction

import sfumato as sf
from sfumato.errors import ReleaseError, SfumatoError
from sfumato.exact import format_exact
from sfumato.schema import Bins, IntegerRange, Period, Values


class AccessDenied(SfumatoError):
    pass


@dataclass(frozen=True)
class User:
    name: str
    role: str


@dataclass(frozen=True)
class Reply:
    table: object
    spent: Fraction
    left: Fraction
    repeated: bool
    notes: tuple = ()
    scales: dict = field(default_factory=dict)


class FakeService:
    def __init__(self, folder):
        self.folder = folder
        self.curator = sf.open(folder / "sfumato.toml")
        self.project = self.curator.project
        self.people = {
            n: (User(n, r), n + "-password", n + "-token")
            for n, r in (("ada", "steward"), ("ana", "analyst"), ("vic", "viewer"))
        }
        self.sessions = {}
        self.link = "steward-link"
        self.asked = []
        self.waiting = [
            {
                "id": "1",
                "asked_by": "ana",
                "epsilon": "1.5",
                "text": "DP-SELECT 1.5 COUNT(*) FROM incidents",
                "at": "2026-11-17T10:00:00",
                "status": "waiting",
            }
        ]
        self.work = {}

    def find_user(self, name):
        return self.people[name][0] if name in self.people else None

    def check_password(self, name, password):
        return self.people[name][0] if name in self.people and self.people[name][1] == password else None

    def check_token(self, token):
        return next((u for u, _, t in self.people.values() if t == token), None)

    def enter_by_link(self, link):
        if link != self.link:
            return None
        self.link = None
        return self.open_session(self.people["ada"][0])

    def open_session(self, user):
        secret = secrets.token_hex(8)
        self.sessions[secret] = (user, secrets.token_hex(8))
        return secret

    def find_session(self, secret):
        return self.sessions.get(secret)

    def close_session(self, secret):
        self.sessions.pop(secret, None)

    def _may(self, user, *roles):
        if user.role not in roles:
            raise AccessDenied("this is not for your role")

    async def describe(self, user, text, *, epsilon=None, parameter_types=()):
        raise SfumatoError("not in the stand-in")

    async def explain(self, user, text, *, epsilon=None, parameters=()):
        self._may(user, "analyst", "steward")
        said = await asyncio.to_thread(self.curator.sql, "EXPLAIN " + text)
        text = said.explanation
        cost = re.search(r"cost +\(?epsilon ([\d./]+)", text)
        measures = [
            {"name": n, "noise": "discrete laplace", "expected_error_95": float(h)}
            for n, h in re.findall(r"measures +(.*)\n.*\+-([\d.]+)", text)
        ]
        price = cost.group(1) if cost else "0"
        return {
            "epsilon": price,
            "delta": "0",
            "measures": measures,
            "text": text,
            "stored": any(s == text for s, *_ in self.asked),
            "admitted": "does NOT fit" not in text,
            "left": str(self.curator.budget().left),
        }

    async def ask(self, user, text, *, epsilon=None, at_most=None, parameters=()):
        self._may(user, "analyst", "steward")
        answer = await asyncio.to_thread(self.curator.sql, text)
        if answer.spent:
            self.asked.append((text, user.name, answer.spent))
        left = self.curator.budget().left
        return Reply(
            table=answer.table,
            spent=answer.spent,
            left=Fraction(str(left)),
            repeated=answer.repeated,
            notes=(f"Epsilon {format_exact(answer.spent)} was spent.", *answer.notes),
        )

    async def budget(self, user):
        b = self.curator.budget()
        share = {"epsilon": "1", "spent": "0.4", "left": "0.6"} if user.role == "analyst" else None
        return {
            "total": str(b.total),
            "spent": str(b.spent),
            "left": str(b.left),
            "delta": str(b.delta),
            "share": share,
        }

    async def tables(self, user):
        told = []
        for name, table in self.project.tables.items():
            columns = []
            for c in table.columns.values():
                more = {}
                match c.domain:
                    case Values(values):
                        more = {"kind": "values", "values": list(values)}
                    case IntegerRange(a, b):
                        more = {"kind": "range", "range": [a, b]}
                    case Period(part):
                        more = {"kind": "period", "period": part}
                    case Bins(edges):
                        more = {"kind": "bins", "bins": [str(e) for e in edges]}
                if c.bounds:
                    more["bounds"] = [str(e) for e in c.bounds]
                columns.append({"name": c.name, **more})
            told.append(
                {
                    "name": name,
                    "unit": table.unit.column,
                    "max_records": table.unit.max_records,
                    "columns": columns,
                    "public": False,
                }
            )
        return told

    async def history(self, user):
        return [e for e in await self._entries() if user.role == "steward" or e["asked_by"] == user.name]

    async def _entries(self):
        told = []
        for i, c in enumerate(self.curator.budget().to_record()["charges"]):
            who = self.asked[i][1] if i < len(self.asked) else "ada"
            told.append(
                {
                    "sequence": c["sequence"],
                    "at": c["recorded_at"],
                    "asked_by": who,
                    "table": c["table"],
                    "subject": self.asked[i][0] if i < len(self.asked) else c["by"],
                    "epsilon": c["epsilon"],
                    "answered": True,
                }
            )
        return told

    async def ledger(self, user):
        self._may(user, "steward")
        return await self._entries()

    async def check(self, user, recipe_text):
        self._may(user, "steward", "analyst")
        path = self.folder / "checked.toml"
        path.write_text(recipe_text)
        return self.curator.check(path).to_record()

    async def start_release(self, user, recipe_text, *, name):
        self._may(user, "steward")
        path = self.folder / f"{name}.recipe.toml"
        path.write_text(recipe_text)
        job = {
            "id": str(len(self.work) + 1),
            "name": name,
            "status": "running",
            "stages": [],
            "asked_by": user.name,
        }
        self.work[job["id"]] = job

        def run():
            self.curator.release(path, out=self.folder / "releases" / name, progress=job["stages"].append)
            job["status"] = "done"

        self.task = asyncio.create_task(asyncio.to_thread(run))
        return job

    async def jobs(self, user):
        return list(self.work.values())

    async def job(self, user, number):
        return self.work[number]

    async def watch_job(self, user, number):
        while True:
            yield dict(self.work[number])
            if self.work[number]["status"] == "done":
                return
            await asyncio.sleep(0.05)

    async def releases(self, user):
        found = []
        for place in sorted((self.folder / "releases").glob("*")):
            if (place / "certificate.json").exists():
                found.append(
                    {
                        "name": place.name,
                        "table": "incidents",
                        "recipe": "cell-counts",
                        "epsilon": "1",
                        "files": sorted(p.name for p in place.iterdir()),
                    }
                )
        return found

    async def release_file(self, user, name, file):
        path = self.folder / "releases" / name / file
        if not path.is_file():
            raise ReleaseError("no such file")
        return path

    async def report_page(self, user, name):
        from sfumato.report import build_report

        return (await asyncio.to_thread(build_report, self.folder / "releases" / name)).decode()

    async def ask_release(self, user, name, sql):
        from sfumato.release.ask import open_model

        return open_model(self.folder / "releases" / name).sql(sql).table

    async def users(self, user):
        self._may(user, "steward")
        return [
            {"name": u.name, "role": u.role, "share": "1" if u.role == "analyst" else None, "spent": "0.4"}
            for u, *_ in self.people.values()
        ]

    async def add_user(self, user, *, name, role, share, password=None):
        self._may(user, "steward")
        self.people[name] = (User(name, role), password, name + "-token")
        return name + "-token"

    async def remove_user(self, user, name):
        self._may(user, "steward")
        self.people.pop(name)

    async def new_token(self, user, name):
        return "fresh"

    async def approvals(self, user):
        self._may(user, "steward")
        return self.waiting

    async def decide(self, user, number, *, approve):
        next(e for e in self.waiting if e["id"] == number)["status"] = "approved" if approve else "declined"

    def metrics(self):
        return {"charges_total": 3.0}

    async def close(self):
        pass
