"""The one place that every door calls: roles, shares, approvals, stored answers, jobs."""

import asyncio
import contextvars
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.errors import (
    AccessDenied,
    ApprovalNeeded,
    BudgetExceeded,
    ChargeKept,
    RecipeError,
    ReleaseError,
    TooManyRequests,
)
from sfumato.serve import facts, purchase
from sfumato.serve import jobs as sfumato_jobs
from sfumato.serve import service as sfumato_service
from sfumato.serve.clock import next_reply
from sfumato.serve.state import User

COUNT = "DP-SELECT 0.25 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"
ANA, SUE, VIC = (User(name=n, role=r) for n, r in (("ana", "analyst"), ("sue", "steward"), ("vic", "viewer")))
RECIPE = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic", "month"]\nepsilon = 0.5\n'


class Stand:
    """A module but for what is named otherwise."""

    def __init__(self, module, **named):
        self.__dict__.update(vars(module), **named)


TREE = 'recipe = "tree"\ntable = "visits"\ncolumns = ["clinic", "month"]\nepsilon = 0.5\ndelta = 1e-9\n'


def charges(service):
    return [entry for entry in service.curator.budget().entries if entry.kind == "charge"]


def test_an_answer_is_charged_to_who_asks_and_free_to_all_who_follow(make_service, run):
    service = make_service()

    async def ask():
        first = await service.ask(ANA, COUNT)
        again = await service.ask(SUE, COUNT)
        return first, again

    first, again = run(ask())
    assert first.table == again.table
    assert (first.spent, again.spent, again.repeated) == (Fraction(1, 4), 0, True)
    assert first.left == Fraction(3, 4)
    assert again.left == Fraction(39, 4)
    (charge,) = charges(service)
    assert charge.asked_by == "ana"
    assert "this cost epsilon 0.25" in first.notes[0]


def test_a_share_is_a_limit_within_the_whole(make_service, run):
    service = make_service()

    async def ask():
        for bound in range(4):
            await service.ask(ANA, f"DP-SELECT 0.25 COUNT(*) FROM visits WHERE fee > {bound}")
        with pytest.raises(BudgetExceeded, match="share of 'ana'"):
            await service.ask(ANA, "DP-SELECT 0.25 COUNT(*) FROM visits WHERE fee > 9")
        await service.ask(SUE, "DP-SELECT 0.25 COUNT(*) FROM visits WHERE fee > 9")
        return await service.budget(ANA)

    budget = run(ask())
    assert budget["share"] == {"total": "1", "spent": "1", "left": "0"}
    assert (budget["spent"], budget["left"]) == ("1.25", "8.75")


@pytest.mark.parametrize(
    ("user", "call"),
    [
        (VIC, lambda s: s.ask(VIC, COUNT)),
        (VIC, lambda s: s.explain(VIC, COUNT)),
        (VIC, lambda s: s.describe(VIC, COUNT)),
        (VIC, lambda s: s.tables(VIC)),
        (VIC, lambda s: s.budget(VIC)),
        (VIC, lambda s: s.history(VIC)),
        (VIC, lambda s: s.check(VIC, RECIPE)),
        (VIC, lambda s: s.start_release(VIC, RECIPE, name="r")),
        (VIC, lambda s: s.jobs(VIC)),
        (ANA, lambda s: s.users(ANA)),
        (ANA, lambda s: s.add_user(ANA, name="eve", role="steward")),
        (ANA, lambda s: s.remove_user(ANA, "sue")),
        (ANA, lambda s: s.new_token(ANA, "sue")),
        (ANA, lambda s: s.set_share(ANA, "ana", 9)),
        (ANA, lambda s: s.ledger(ANA)),
        (ANA, lambda s: s.decide(ANA, 1, approve=True)),
        (User(name="x", role="nobody"), lambda s: s.releases(User(name="x", role="nobody"))),
    ],
)
def test_a_role_allows_what_it_names_and_nothing_else(make_service, run, user, call):
    service = make_service()
    with pytest.raises(AccessDenied, match="does not allow"):
        run(call(service))
    assert charges(service) == []
    assert service.events[-1]["event"] == "denied"
    assert service.events[-1]["person"] == user.name


def test_refusals_before_the_charge_cost_nothing(make_service, run):
    service = make_service()
    for statement in (
        "SELECT person FROM visits",
        "DP-SELECT 0.1 SUM(month + ) FROM visits",
        "DROP TABLE visits",
    ):
        with pytest.raises(sf.UnsupportedQuery):
            run(service.ask(ANA, statement))
    assert charges(service) == []


def test_what_fails_after_the_charge_says_one_thing(make_service, run, folder, monkeypatch):
    service = make_service()
    engine = service.curator._engine
    reasons = [sf.SourceError("one reason"), RuntimeError("a value: 17"), RecursionError(), MemoryError()]
    texts = set()
    for number, reason in enumerate(reasons):

        def fail(*_, reason=reason, **__):
            raise reason

        monkeypatch.setattr(type(engine), "aggregate", fail)
        with pytest.raises(ChargeKept) as caught:
            run(service.ask(ANA, f"DP-SELECT 0.1 COUNT(*) FROM visits WHERE fee > {number}"))
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert len(charges(service)) == len(reasons)
    assert "17" not in json.dumps(service.events)


def test_what_fails_unforeseen_before_the_charge_says_that_nothing_was_spent(make_service, run, monkeypatch):
    service = make_service()

    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(type(service.curator._engine), "bind", fail)
    with pytest.raises(sf.SfumatoError, match="nothing was spent"):
        run(service.ask(ANA, COUNT))
    with pytest.raises(sf.UnsupportedQuery, match="too large"):
        run(service.ask(ANA, "DP-SELECT 0.1 COUNT(*) FROM visits WHERE fee > $1", parameters=(10**400,)))
    assert charges(service) == []


def test_an_answer_that_no_door_could_write_out_is_refused_for_nothing(make_service, run):
    service = make_service()
    keys = ", ".join(f"(fee + {n}) > {n}" for n in range(21))
    statement = f"DP-SELECT 0.01 COUNT(*) FROM visits GROUP BY {keys}"
    for call in (service.ask, service.explain):
        with pytest.raises(sf.UnsupportedQuery, match="2,097,152 groups"):
            run(call(ANA, statement))
    assert charges(service) == []


def test_what_was_charged_is_finished_after_the_client_left(make_service, run):
    service = make_service()

    async def leave():
        task = asyncio.create_task(service.ask(ANA, COUNT))
        while not charges(service):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await service.close()

    run(leave())
    service = make_service()
    assert run(service.ask(ANA, COUNT)).repeated


def test_many_who_ask_the_same_make_one_charge(make_service, run):
    service = make_service()

    async def ask():
        return await asyncio.gather(*(service.ask(ANA if i % 2 else SUE, COUNT) for i in range(64)))

    replies = run(ask())
    assert len({reply.table.to_pydict().__repr__() for reply in replies}) == 1
    assert len(charges(service)) == 1
    assert sum(reply.spent for reply in replies) == Fraction(1, 4)


def test_a_session_can_be_capped(make_service, run):
    service = make_service()
    with pytest.raises(BudgetExceeded, match=r"at most epsilon 0\.2"):
        run(service.ask(ANA, COUNT, at_most=Fraction(1, 5)))
    with pytest.raises(BudgetExceeded):  # several charges, which together are beyond it
        run(service.ask(ANA, "DP-SELECT 0.3 clinic, fee, month FROM visits", at_most=Fraction(1, 5)))
    run(service.ask(ANA, "DP-SELECT WITHIN 1% COUNT(*) FROM visits", at_most=Fraction(1, 50)))
    assert 0 < service.curator.share("ana").spent <= Fraction(1, 50)


def test_what_costs_much_waits_for_a_steward(make_service, run):
    service = make_service(approve_above="0.2")

    async def ask():
        with pytest.raises(ApprovalNeeded, match="waits as number 1") as caught:
            await service.ask(ANA, COUNT)
        with pytest.raises(ApprovalNeeded, match="waits as number 1"):
            await service.ask(ANA, COUNT)
        await service.ask(ANA, "DP-SELECT 0.1 COUNT(*) FROM visits")
        assert (await service.approvals(ANA))[0]["status"] == "waiting"
        await service.decide(SUE, caught.value.number, approve=True)
        reply = await service.ask(ANA, COUNT)
        with pytest.raises(AccessDenied, match="no request 1 waits"):
            await service.decide(SUE, 1, approve=False)
        other = COUNT.replace("0.25", "0.26")
        with pytest.raises(ApprovalNeeded, match="waits as number 2"):
            await service.ask(ANA, other)
        await service.decide(SUE, 2, approve=False)
        with pytest.raises(ApprovalNeeded, match="waits as number 3"):
            await service.ask(ANA, other)
        return reply

    assert run(ask()).spent == Fraction(1, 4)
    assert len(charges(service)) == 2


def test_what_adds_up_in_a_day_waits_for_a_steward(make_service, run, monkeypatch):
    service = make_service(approve_daily="0.3")

    other = "DP-SELECT 0.01 COUNT(*) FROM visits WHERE fee > 3"
    more = "DP-SELECT 0.2 month, COUNT(*) FROM visits GROUP BY month"

    async def ask():
        await service.ask(ANA, COUNT)
        assert not (await service.explain(ANA, COUNT.replace("0.25", "0.05")))["approval"]
        with pytest.raises(ApprovalNeeded, match=r"more than 0\.05 needs a steward's approval today"):
            await service.ask(ANA, more)
        assert (await service.ask(ANA, COUNT)).repeated
        assert (await service.job(ANA, (await service.start_release(ANA, RECIPE, name="a"))["number"]))[
            "status"
        ] == "approval"
        await service.decide(SUE, 1, approve=True)
        await service.ask(ANA, more)
        with pytest.raises(ApprovalNeeded, match="more than 0 needs"):
            await service.ask(ANA, other)
        await service.ask(SUE, COUNT.replace("0.25", "0.4"))
        later = datetime.now(UTC) + timedelta(hours=25)
        monkeypatch.setattr(facts, "datetime", SimpleNamespace(now=lambda _: later))
        await service.ask(ANA, other)

    run(ask())
    assert len(charges(service)) == 4


def test_stewards_wait_for_another_steward_where_that_is_set(make_service, run):
    service = make_service(approve_above="0.2", approve_stewards=True)
    service.state.add_user("tom", "steward")
    tom = service.state.find_user("tom")

    async def ask():
        with pytest.raises(ApprovalNeeded):
            await service.ask(SUE, COUNT)
        with pytest.raises(AccessDenied, match="no request 1 waits for your decision"):
            await service.decide(SUE, 1, approve=True)
        await service.decide(tom, 1, approve=True)
        return await service.ask(SUE, COUNT)

    assert run(ask()).spent == Fraction(1, 4)


def test_a_limit_for_a_day_holds_for_all_that_is_asked_at_once(make_service, run):
    service = make_service()
    run(service.set_limits(SUE, "ana", {"daily": Fraction(3, 10)}))
    ana = service.state.find_user("ana")
    assert ana.daily == Fraction(3, 10)

    async def ask():
        asked = (service.ask(ana, COUNT.replace("0.25", price)) for price in ("0.21", "0.22", "0.23"))
        found = await asyncio.gather(*asked, return_exceptions=True)
        bought = [each for each in found if not isinstance(each, BudgetExceeded)]
        assert len(bought) == 1
        assert all("24 hours" in str(each) for each in found if each not in bought)
        assert (await service.explain(ana, COUNT))["left"] == str(float(Fraction(3, 10) - bought[0].spent))
        with pytest.raises(BudgetExceeded, match="24 hours"):
            await service.start_release(ana, RECIPE, name="a")

    run(ask())
    assert len(charges(service)) == 1
    assert service.events[0]["event"] == "limits"
    assert service.events[0]["after"] == {"daily": "3/10"}


def test_limits_of_a_day_count_releases_that_are_at_work(make_service, run):
    service = make_service(approve_daily="0.7")
    run(service.set_limits(SUE, "ana", {"daily": Fraction(6, 10)}))
    ana = service.state.find_user("ana")
    service.state.add_job("ana", name="a", recipe=RECIPE, status="waiting")
    service.state.add_job("ana", name="b", recipe=RECIPE, status="approval")
    service.state.add_job("sue", name="c", recipe=RECIPE, status="running")

    async def ask():
        with pytest.raises(BudgetExceeded, match="24 hours"):
            await service.ask(ana, COUNT.replace("0.25", "0.15"))
        with pytest.raises(ApprovalNeeded, match=r"more than 0\.2 needs a steward"):
            await service.ask(ANA, COUNT)
        service.renew(service.curator, service.settings)
        return await service.ask(ana, COUNT.replace("0.25", "0.1"))

    assert run(ask()).left == 0
    assert len(charges(service)) == 1


def test_what_does_not_fit_into_a_share_waits_for_nobody(make_service, run):
    service = make_service(approve_above="0.2")
    dear = COUNT.replace("0.25", "1.5")
    text = run(service.explain(ANA, dear))["text"]
    assert "epsilon 1 left to you; this statement does NOT fit" in text
    assert "a steward has to approve it" in text
    with pytest.raises(BudgetExceeded, match="epsilon 1 is left to you"):
        run(service.ask(ANA, dear))
    assert run(service.approvals(SUE)) == []


def test_an_approval_pays_for_one_purchase_of_the_price_that_was_shown(make_service, run):
    service = make_service(approve_above="0.00005")
    closer = "DP-SELECT WITHIN 1% clinic, COUNT(*) FROM visits GROUP BY clinic"

    async def ask():
        for statement in (closer, COUNT):
            with pytest.raises(ApprovalNeeded) as caught:
                await service.ask(ANA, statement)
            await service.decide(SUE, caught.value.number, approve=True)
        first = (await service.ask(ANA, closer)).spent
        with pytest.raises(BudgetExceeded):  # what buys nothing uses nothing up
            await service.ask(ANA, COUNT, at_most=Fraction(1, 10**6))
        assert (await service.ask(ANA, COUNT)).spent
        assert [each["status"] for each in await service.approvals(ANA)] == ["used", "used"]
        return first

    # It begins with 0.0001, which is what was approved, and would have gone on to more.
    assert run(ask()) == Fraction(1, 10_000)


def test_what_needs_no_approval_goes_on_to_the_threshold_and_no_further(make_service, run):
    """However much who asks would let it cost: a first step below it is no approval of the rest."""
    service = make_service(approve_above="0.05")
    for number, most in enumerate((None, Fraction(1, 2), Fraction(1, 50))):
        statement = f"DP-SELECT WITHIN 0.1% clinic, COUNT(*) FROM visits WHERE month > {number} GROUP BY 1"
        spent = run(service.ask(ANA, statement, at_most=most)).spent
        assert 0 < spent <= min(most or 1, Fraction(1, 20))


def test_a_reading_longer_than_the_first_reply_time_ends_on_the_next_one(make_service, run, monkeypatch):
    service = make_service(reply_every=0.05)
    engine = type(service.curator._engine)
    aggregate, now, slept = engine.aggregate, [100.0], []

    def read(*given, **named):
        now[0] += 0.13
        return aggregate(*given, **named)

    def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(engine, "aggregate", read)
    monkeypatch.setattr(purchase, "time", Stand(time, monotonic=lambda: now[0], sleep=sleep))
    run(service.ask(ANA, COUNT))
    (seconds,) = slept
    assert abs(0.13 + seconds - 0.05 * 2**1.5) < 1e-9


def test_a_model_is_read_and_asked_by_viewers(make_service, run):
    service = make_service()
    recipe = 'recipe = "linear"\ntable = "visits"\ntarget = "fee"\ninputs = ["clinic"]\n'

    async def release():
        job = await service.start_release(SUE, recipe + "epsilon = 1\ndelta = 1e-6\n", name="fees")
        async for _ in service.watch_job(SUE, job["number"]):
            pass
        before = (await service.budget(SUE))["spent"]
        found = await service.predict(VIC, "fees", "clinic\nSouth\nnowhere\n")
        assert found.num_rows == 2
        with pytest.raises(sf.RecipeError, match="clinic"):
            await service.predict(VIC, "fees", "x\n1\n")
        assert b"coefficient" in await service.report_page(VIC, "fees")
        assert (await service.budget(SUE))["spent"] == before

    run(release())


def test_a_release_is_a_job_that_others_can_look_at(make_service, run, folder):
    service = make_service()

    async def release():
        job = await service.start_release(ANA, RECIPE, name="monthly")
        seen = [each["status"] async for each in service.watch_job(ANA, job["number"])]
        assert seen[-1] == "done"
        with pytest.raises(ReleaseError, match="already"):
            await service.start_release(ANA, RECIPE, name="monthly")
        found = (await service.releases(VIC))[0]
        page = await service.report_page(VIC, "monthly")
        with pytest.raises(ReleaseError, match="no model"):
            await service.ask_release(VIC, "monthly", "SELECT COUNT(*) AS n FROM visits")
        tree = await service.start_release(SUE, TREE, name="rows")
        assert [each["status"] async for each in service.watch_job(SUE, tree["number"])][-1] == "done"
        rows = (await service.ask_release(VIC, "rows", "SELECT COUNT(*) AS n FROM visits")).to_pylist()
        path = await service.release_file(VIC, "monthly", "table.csv")
        strange = (("monthly", "../../sfumato.toml"), ("..", "sfumato.toml"), ("monthly", "x"))
        for name, file in (*strange, ("monthly", "../monthly/table.csv")):
            with pytest.raises(ReleaseError, match="no"):
                await service.release_file(VIC, name, file)
        return found, page, rows, path

    found, page, rows, path = run(release())
    assert found["recipe"] == "cell-counts"
    assert "certificate.json" in found["files"]
    assert page.startswith(b"<!doctype html>") or b"<html" in page[:200]
    assert "n" in rows[0]
    assert path.read_text(encoding="utf-8").startswith("clinic,month,")
    sf.verify(folder / "releases" / "monthly", ledger=folder / "ledger.db")
    assert charges(service)[0].asked_by == "ana"


def test_releases_do_not_pile_up_or_pass_for_others(make_service, run, folder):
    service = make_service(approve_above="0.001")
    (folder / "ours").mkdir()
    (folder / "ours" / "certificate.json").write_text("{}")

    async def start():
        with pytest.raises(sf.ReleaseError, match="already"):
            await service.start_release(ANA, RECIPE, name="ours")
        with pytest.raises(sf.RecipeError, match="at most"):
            await service.start_release(ANA, RECIPE + "#" * 200_000, name="long")
        for number in range(20):
            await service.start_release(ANA, RECIPE, name=f"r{number}")
        with pytest.raises(TooManyRequests):
            await service.start_release(ANA, RECIPE, name="more")

    run(start())


def test_what_else_lies_in_a_release_folder_is_not_served(make_service, run, folder):
    service = make_service()
    recipe = sf.recipes.CellCounts(table="visits", by=("clinic",))
    service.curator.release(recipe, epsilon=0.5, out=folder / "shown")
    assert run(service.release_file(VIC, "shown", "table.csv")).is_file()
    (folder / "shown" / "truth.csv").write_text("exact\n", encoding="utf-8")
    assert run(service.releases(VIC)) == []
    with pytest.raises(sf.VerificationFailed, match="not part of this release"):
        run(service.release_file(VIC, "shown", "truth.csv"))


def test_an_approval_pays_once_even_if_nobody_saw_the_answer(make_service, run, monkeypatch):
    service = make_service(approve_above="0.2")
    with pytest.raises(ApprovalNeeded):
        run(service.ask(ANA, COUNT))
    run(service.decide(SUE, 1, approve=True))
    with monkeypatch.context() as patch:
        patch.setattr(type(service.curator._engine), "aggregate", lambda *_, **__: 1 / 0)
        with pytest.raises(ChargeKept):
            run(service.ask(ANA, COUNT))
    assert len(charges(service)) == 1
    assert run(service.approvals(ANA))[0]["status"] == "used"


def test_an_interrupted_job_is_finished_at_the_next_start_without_another_charge(make_service, run, folder):
    service = make_service()
    number = service.state.add_job("ana", name="later", recipe=RECIPE, status="running")
    service.curator.release(sf.recipes.CellCounts(table="visits", by=("clinic", "month")), epsilon=0.5)

    async def resume():
        service.resume_jobs()
        return [job["status"] async for job in service.watch_job(SUE, number)]

    assert run(resume())[-1] == "done"
    assert len(charges(service)) == 1
    assert (folder / "releases" / "later" / "certificate.json").exists()


def test_of_two_servers_one_makes_a_release(make_service, run, monkeypatch):
    one, other = make_service(), make_service()
    gate, began, released = threading.Event(), [], type(one.curator).release

    def release(self, *given, **named):
        began.append(self)
        assert gate.wait(60)
        return released(self, *given, **named)

    monkeypatch.setattr(type(one.curator), "release", release)
    number = one.state.add_job("ana", name="shared", recipe=RECIPE, status="waiting")

    async def work():
        one.resume_jobs()
        while not began:
            await asyncio.sleep(0.01)
        other.resume_jobs()
        other._jobs.start(number)
        gate.set()
        for service in (other, one):
            assert [job["status"] async for job in service.watch_job(SUE, number)][-1] == "done"
        await asyncio.gather(one.close(), other.close())

    run(work())
    assert began == [one.curator]
    assert len(charges(one)) == 1


def test_a_job_of_a_server_that_died_is_taken_over(make_service, run, monkeypatch):
    service = make_service()
    number = service.state.add_job("ana", name="later", recipe=RECIPE, status="waiting")
    now = time.time()
    assert service.state.claim_job(number, "dead", seconds=30)
    assert service.state.claim_job(number, "other", seconds=30) is None
    monkeypatch.setattr("sfumato.serve.state.time.time", lambda: now + 20)
    service.state.renew_claims([number], "dead", seconds=30)
    service.state.renew_claims([number], "other", seconds=0)
    monkeypatch.setattr("sfumato.serve.state.time.time", lambda: now + 45)
    assert service.state.claim_job(number, "other", seconds=30) is None
    monkeypatch.setattr("sfumato.serve.state.time.time", lambda: now + 51)

    async def resume():
        service.resume_jobs()
        found = [job["status"] async for job in service.watch_job(SUE, number)]
        await service.close()
        return found

    assert run(resume())[-1] == "done"
    service.state.update_job(number, status="failed", stages=[], server="dead")  # it wakes up again
    assert service.state.jobs()[0]["status"] == "done"


def test_how_far_a_job_is_shows_on_the_grid_however_long_it_takes(make_service, run, monkeypatch):
    """Also to other servers: what is kept of it is written then, and not when the work has ended."""
    service = make_service()
    ended, looked = [], []
    released, update = type(service.curator).release, service.state.update_job

    def release(self, *given, **named):
        found = released(self, *given, **named)
        time.sleep(1.1)  # longer than the first look
        ended.append(service.state.jobs()[0]["status"])
        return found

    def follow(elapsed, *, first):
        looked.append((elapsed, next_reply(elapsed, first=first)))
        return looked[-1][1]

    monkeypatch.setattr(type(service.curator), "release", release)
    monkeypatch.setattr(sfumato_jobs, "next_reply", follow)
    slept, sleep = [], asyncio.sleep

    async def record(seconds, *given):
        slept.append(seconds)
        await sleep(seconds, *given)

    monkeypatch.setattr(sfumato_jobs, "asyncio", Stand(asyncio, sleep=record))
    written = []
    monkeypatch.setattr(
        service.state,
        "update_job",
        lambda *given, **named: (written.append(named["status"]), update(*given, **named)),
    )

    async def work():
        number = (await service.start_release(ANA, RECIPE, name="monthly"))["number"]
        return [job["status"] async for job in service.watch_job(ANA, number)]

    assert run(work())[-1] == "done"
    assert ended != ["done"]
    assert written[-1] == "done"
    assert len(written) <= len(slept) == len(looked)
    assert len(slept) > 1
    grid = [0.5 * 2 ** (step / 2) for step in range(40)]
    for (elapsed, reply), seconds in zip(looked, slept, strict=True):
        assert min(abs(reply - each) for each in grid) < 1e-6
        assert abs(elapsed - 0.001 + seconds - reply) < 1e-6


def test_a_large_release_waits_for_a_steward(make_service, run):
    service = make_service(approve_above="0.2")

    async def release():
        job = await service.start_release(ANA, RECIPE, name="monthly")
        assert job["status"] == "approval"
        await service.decide(SUE, 1, approve=True)
        return [each["status"] async for each in service.watch_job(ANA, job["number"])]

    assert run(release())[-1] == "done"


def test_an_analysts_recipe_names_no_file_of_the_server(make_service, run, folder):
    service = make_service()
    adaptive = 'recipe = "adaptive"\ntable = "visits"\nepsilon = 0.5\npublic = "/etc/hostname"\n'
    for user in (ANA, SUE):
        for call in (service.check(user, adaptive), service.start_release(user, adaptive, name="r")):
            with pytest.raises(AccessDenied, match=r"file|folder"):
                run(call)
    (folder / "guide.csv").write_text("clinic,month\nNorth,1\n")
    inside = adaptive.replace("/etc/hostname", "guide.csv")
    for call in (service.check(ANA, inside), service.start_release(ANA, inside, name="r")):
        with pytest.raises(AccessDenied, match="only a steward's recipe"):
            run(call)
    assert service.state.jobs() == []


def test_too_many_requests_and_too_many_wrong_passwords_wait(make_service, run):
    service = make_service(per_minute=5)

    async def ask():
        for _ in range(5):
            await service.budget(ANA)
        with pytest.raises(TooManyRequests):
            await service.budget(ANA)
        await service.budget(SUE)

    run(ask())
    assert service.check_password("ana", "ana's password", origin="here") == ANA
    assert service.check_password("nobody", "ana's password", origin="here") is None
    for _ in range(10):
        assert service.check_password("ana", "wrong password", origin="here") is None
    with pytest.raises(TooManyRequests):
        service.check_password("ana", "ana's password", origin="here")
    assert service.check_password("ana", "ana's password", origin="elsewhere") == ANA
    assert "password" not in json.dumps(service.events)


def test_the_audit_log_says_from_where_and_by_which_door(make_service, run):
    service = make_service()

    async def ask():
        sfumato_service.CALLER.set({"door": "wire", "address": "192.0.2.7"})
        await service.ask(ANA, COUNT)
        with pytest.raises(AccessDenied):
            await service.users(ANA)
        await service.set_share(SUE, "ana", "0.75")
        await service.set_share(SUE, "ana", None)

    run(ask())
    assert [event["event"] for event in service.events] == ["ask", "denied", "share", "share"]
    assert {(event["door"], event["address"]) for event in service.events} == {("wire", "192.0.2.7")}
    changes = [(event["before"], event["after"]) for event in service.events[2:]]
    assert changes == [("1", "0.75"), ("0.75", "all")]


def test_who_is_not_let_in_leaves_lines_but_fills_no_disk(make_service, run):
    service = make_service()

    def knock(address):
        sfumato_service.CALLER.set({"door": "http", "address": address})
        for number in range(60):
            assert service.check_token("sf_wrong") is None
            assert service.check_password(f"nobody{number}", "wrong password", origin=address) is None
        assert service.enter_by_link("wrong") is None
        with pytest.raises(TooManyRequests, match="your address"):
            service.check_password("ana", "ana's password", origin=address)

    for address in ("192.0.2.7", "192.0.2.8"):
        contextvars.copy_context().run(knock, address)
    for address in ("192.0.2.7", "192.0.2.8"):
        lines = [event for event in service.events if event["address"] == address]
        assert len(lines) == 60
        assert {(line["event"], line["outcome"]) for line in lines} == {
            ("token", "refused"),
            ("login", "refused"),
        }
    assert run(service.metrics())[0]["logins_refused"] == 120
    assert service.check_password("ana", "ana's password", origin="192.0.2.9") == ANA


def test_what_is_kept_of_a_wrong_name_is_short(make_service):
    service = make_service()
    for number in range(20):
        name = f"{number}" + "x" * 100_000
        assert service.check_password(name, "wrong password", origin="here") is None
    assert len(json.dumps(service.events)) < 20_000
    assert sum(map(len, service._failed)) < 20_000


def test_when_a_reading_ended_shows_nowhere(make_service, run, monkeypatch):
    service = make_service(reply_every=0.4)
    engine = type(service.curator._engine)
    ended, original = [], engine.aggregate

    def aggregate(*given, **named):
        found = original(*given, **named)
        ended.append(time.monotonic())
        return found

    monkeypatch.setattr(engine, "aggregate", aggregate)

    async def ask():
        begun = time.monotonic()
        asked = [asyncio.create_task(service.ask(user, COUNT)) for user in (ANA, SUE)]
        while not ended:
            await asyncio.sleep(0.01)
        while time.monotonic() < begun + 0.3:
            stored = (await service.explain(ANA, COUNT))["stored"]
            answered = any(charge["answered"] for charge in await service.history(ANA))
            running = (await service.metrics())[1]["running"]
            # On a busy machine the looks themselves can last beyond the reply.
            assert time.monotonic() > begun + 0.4 or (stored, answered, running) == (False, False, 2)
            await asyncio.sleep(0.02)
        await asyncio.gather(*asked)
        return time.monotonic() - begun

    assert run(ask()) >= 0.4
    assert ended[0]


def test_the_waits_of_a_statement_with_many_readings_do_not_grow(make_service, folder, run, monkeypatch):
    columns = "\n".join(f"c{number} = {{range = [0, 9]}}" for number in range(7))
    pq.write_table(pa.table({f"c{number}": [1, 2, 3] for number in range(7)}), folder / "wide.parquet")
    with (folder / "sfumato.toml").open("a", encoding="utf-8") as project:
        project.write(
            f'[tables.wide]\nsource = "wide.parquet"\nunit = "row"\n[tables.wide.columns]\n{columns}\n'
        )
    service, clock, slept = make_service(), [0.0], []

    def monotonic():
        clock[0] += 0.01
        return clock[0]

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(purchase, "time", SimpleNamespace(monotonic=monotonic, sleep=sleep, time=time.time))
    assert run(service.ask(SUE, "DP-SELECT 5 c0, c1, c2, c3, c4, c5, c6 FROM wide LIMIT 3")).synthetic
    assert len(slept) == 21  # a reading for each pair of columns
    assert max(slept) < 0.1


def test_a_steward_link_works_once(make_service):
    service = make_service()
    link = service.make_steward_link()
    session = service.enter_by_link(link)
    assert service.state.find_session(session)[0] == SUE
    assert service.enter_by_link(link) is None
    service.state.close_session(session)
    assert service.state.find_session(session) is None


def test_a_link_is_for_one_steward_one_process_and_ten_minutes(make_service, monkeypatch):
    service, other = make_service(), make_service()
    assert other.enter_by_link(service.make_steward_link()) is None  # as after a stop
    service.state.add_user("ann", "steward")
    assert service.make_steward_link() is None  # nobody says whose
    for nobody in ("ana", "eve"):
        with pytest.raises(AccessDenied, match=f"no steward '{nobody}'"):
            service.make_steward_link(nobody)
    assert service.state.find_session(service.enter_by_link(service.make_steward_link("sue")))[0] == SUE
    link = service.make_steward_link("ann")
    service.state.new_token("ann")
    assert service.enter_by_link(link) is None
    link, now = service.make_steward_link("sue"), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 601)
    assert service.enter_by_link(link) is None


def test_people_are_added_with_a_share_and_removed(make_service, run):
    service = make_service()

    async def manage():
        token = await service.add_user(SUE, name="ben", role="analyst", share="0.5")
        ben = service.check_token(token)
        assert ben == User(name="ben", role="analyst")
        assert service.check_password("ben", token, origin="here") == ben
        with pytest.raises(AccessDenied, match="already"):
            await service.add_user(SUE, name="ben", role="analyst", share="0.5")
        with pytest.raises(RecipeError, match="share"):
            await service.add_user(SUE, name="cy", role="analyst")
        with pytest.raises(AccessDenied, match="name begins"):
            await service.add_user(SUE, name="a b", role="viewer")
        renewed = await service.new_token(ben, "ben")
        assert service.check_token(token) is None
        assert service.check_token(renewed) == ben
        (record,) = [each for each in await service.users(SUE) if each["name"] == "ben"]
        await service.remove_user(SUE, "ben")
        assert service.check_token(renewed) is None
        with pytest.raises(AccessDenied, match="themselves"):
            await service.remove_user(SUE, "sue")
        return record

    assert run(manage())["share"] == "0.5"


def test_tables_show_public_facts_only(make_service, run):
    service = make_service()
    (visits,) = run(service.tables(ANA))
    assert (visits["name"], visits["unit"], visits["max_records"]) == ("visits", "person", 5)
    assert {column["name"]: column.get("kind") for column in visits["columns"]} == {
        "clinic": "text",
        "fee": "number",
        "month": "integer",
        "person": "integer",
    }
    assert "source" not in json.dumps(visits)


def test_where_a_source_is_stays_with_the_server(make_service, run, folder):
    service = make_service()
    (folder / "visits.parquet").rename(folder / "away.parquet")
    for call in (service.ask(ANA, COUNT), service.explain(ANA, COUNT), service.tables(SUE)):
        with pytest.raises(sf.SourceError, match="The server's log says which"):
            run(call)
    assert charges(service) == []
    assert "visits.parquet" in json.dumps(service.events)
