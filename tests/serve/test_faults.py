"""Second tests of what a server must not tell or pay: each fails for one planted fault of tests/mutants."""

import asyncio
import threading
import time
from fractions import Fraction
from types import SimpleNamespace

import pytest

from sfumato.core.errors import AccessDenied, ApprovalNeeded
from sfumato.serve import jobs as sfumato_jobs
from sfumato.serve import purchase
from sfumato.serve.state import User

ANA, SUE = User(name="ana", role="analyst"), User(name="sue", role="steward")
RECIPE = 'recipe = "cell-counts"\ntable = "visits"\nby = ["clinic"]\nepsilon = 0.5\n'
GUIDED = 'recipe = "adaptive"\ntable = "visits"\nepsilon = 0.5\npublic = "guide.csv"\n'


def test_a_recipe_that_would_wait_for_approval_is_refused_for_its_file_and_waits_for_nobody(
    make_service, run, folder
):
    (folder / "guide.csv").write_text("clinic,month\nNorth,1\n")
    service = make_service(approve_above="0.001")
    with pytest.raises(AccessDenied, match="names a file"):
        run(service.start_release(ANA, GUIDED, name="guided"))
    assert run(service.approvals(SUE)) == []
    assert run(service.jobs(SUE)) == []


@pytest.mark.parametrize("most", ["0.02", "0.5", "1"])
def test_an_approval_of_the_first_price_pays_for_no_more_whatever_limit_is_named(make_service, run, most):
    service = make_service(approve_above="0.00001")
    statement = "DP-SELECT WITHIN 0.1% clinic, COUNT(*) FROM visits GROUP BY clinic"

    async def buy():
        with pytest.raises(ApprovalNeeded) as caught:
            await service.ask(ANA, statement, at_most=Fraction(most))
        await service.decide(SUE, caught.value.number, approve=True)
        return await service.ask(ANA, statement, at_most=Fraction(most))

    assert run(buy()).spent == Fraction(1, 10_000)


@pytest.mark.parametrize("lengths", [(0.11, 0.13), (1.7, 2.2)])
def test_two_readings_of_other_lengths_are_answered_after_one_time(make_service, run, monkeypatch, lengths):
    answered = []
    for number, length in enumerate(lengths):
        service = make_service(reply_every=0.05)
        engine, now = type(service.curator._engine), [0.0]
        with monkeypatch.context() as patch:
            aggregate = engine.aggregate

            def read(*given, aggregate=aggregate, now=now, length=length, **named):
                now[0] += length
                return aggregate(*given, **named)

            def sleep(seconds, now=now):
                now[0] += seconds

            clock = SimpleNamespace(monotonic=lambda now=now: now[0], sleep=sleep, time=time.time)
            patch.setattr(engine, "aggregate", read)
            patch.setattr(purchase, "time", clock)
            run(service.ask(ANA, f"DP-SELECT 0.1 COUNT(*) FROM visits WHERE month > {number}"))
        answered.append(round(now[0], 9))
    assert answered[0] == answered[1] > max(lengths)


class Loop:
    """The running loop with another clock."""

    def __init__(self, loop, now):
        self.time = lambda: now[0]
        self.run_in_executor, self.create_task = loop.run_in_executor, loop.create_task


@pytest.mark.parametrize("lengths", [(3.1, 3.9)])
def test_two_jobs_of_other_lengths_are_seen_to_end_after_one_time(make_service, run, monkeypatch, lengths):
    seen = []
    for length in lengths:
        service, now, work = make_service(), [0.0], threading.Event()

        async def sleep(seconds, service=service, now=now, work=work, length=length):
            now[0] += seconds
            if now[0] >= length:
                work.set()
                # What the one worker is given next is done after the release is.
                await asyncio.to_thread(service._jobs._worker.submit(int).result)

        def get_running_loop(now=now):
            return Loop(asyncio.get_running_loop(), now)

        clock = SimpleNamespace(**{**vars(asyncio), "sleep": sleep, "get_running_loop": get_running_loop})

        async def watch(service=service, length=length):
            job = await service.start_release(ANA, RECIPE, name=f"after-{length}")
            return [each["status"] async for each in service.watch_job(ANA, job["number"])]

        with monkeypatch.context() as patch:
            patch.setattr(type(service.curator), "release", lambda *_, work=work, **__: work.wait())
            patch.setattr(sfumato_jobs, "asyncio", clock)
            assert run(watch())[-1] == "done"
        seen.append(round(now[0], 9))
    assert seen[0] == seen[1] > max(lengths)
