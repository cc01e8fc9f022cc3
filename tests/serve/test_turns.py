"""Threads that people share: nobody stalls the others."""

import asyncio
import threading
from fractions import Fraction

import pytest

from sfumato.core.algebra.rows import list_expressions, walk_rows
from sfumato.core.errors import TooManyRequests
from sfumato.serve.state import User
from sfumato.serve.turns import Turns

ANA, SUE = User(name="ana", role="analyst"), User(name="sue", role="steward")
COUNT = "DP-SELECT 0.25 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"


@pytest.fixture
def gate():
    """Opens at the end at the latest, so that nothing blocked outlives its test."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_one_person_never_has_all_threads_and_others_go_first(gate):
    turns, order, guard = Turns(2, each=1, name="t"), [], threading.Lock()

    def work(name):
        with guard:
            order.append(name)
        return name

    blocked = [turns.submit("ana", lambda: gate.wait(60)) for _ in range(8)]
    late = turns.submit("ana", lambda: work("ana"))
    assert turns.submit("ben", lambda: work("ben")).result(60) == "ben"
    others = [turns.submit(name, lambda name=name: work(name)) for name in ("cy", "di")]
    for future in others:
        future.result(60)
    assert not any(future.done() for future in (*blocked, late))
    gate.set()
    assert late.result(60) == "ana"
    assert set(order) == {"ben", "cy", "di", "ana"}
    turns.close()


def test_a_failure_goes_to_who_waits_and_frees_the_thread():
    turns = Turns(1, each=1, name="t")
    with pytest.raises(ZeroDivisionError):
        turns.submit("ana", lambda: 1 / 0).result(60)
    assert turns.submit("ana", lambda: 1).result(60) == 1
    turns.close()


def test_what_one_person_has_waiting_is_bounded(gate):
    turns = Turns(1, each=1, name="t")
    for _ in range(1001):  # one at work, the others behind it
        turns.submit("ana", lambda: gate.wait(60))
    with pytest.raises(TooManyRequests):
        turns.submit("ana", lambda: gate.wait(60))
    turns.submit("ben", lambda: 1)
    turns.close()


def block_readings_of(words, service, gate, monkeypatch):
    """Makes readings whose conditions have `words` wait for the gate; gives a list of those begun."""
    engine = type(service.curator._engine)
    original, begun = engine.aggregate, []

    def aggregate(self, plan, *given, **named):
        trees = [tree for part in walk_rows(plan.rows) for _, tree in list_expressions(part)]
        if any(words in tree.sql() for tree in trees):
            begun.append(1)
            assert gate.wait(60)
        return original(self, plan, *given, **named)

    monkeypatch.setattr(engine, "aggregate", aggregate)
    return begun


def test_many_new_statements_of_one_person_hold_up_nobody(make_service, run, monkeypatch, gate):
    service = make_service()
    begun = block_readings_of("> 9", service, gate, monkeypatch)

    async def ask():
        await service.ask(SUE, COUNT)
        dear = [
            asyncio.create_task(service.ask(ANA, f"DP-SELECT 0.01 COUNT(*) FROM visits WHERE fee > 9{n}"))
            for n in range(8)
        ]
        while len(begun) < service.settings.workers - 1:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            assert (await service.ask(SUE, COUNT)).repeated
            assert (await service.ask(ANA, COUNT)).repeated  # what is stored has a lane of its own
            assert (await service.budget(ANA))["share"]["total"] == "1"
            assert (await service.ask(SUE, COUNT.replace("0.25", "0.26"))).spent
        assert not any(task.done() for task in dear)
        gate.set()
        return await asyncio.gather(*dear)

    assert len(run(ask())) == 8


def test_what_is_known_to_be_stored_is_charged_again_when_the_table_is_replaced(make_service, run, folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    service = make_service()
    assert run(service.ask(ANA, COUNT)).spent
    table = pq.read_table(folder / "visits.parquet")
    pq.write_table(pa.concat_tables([table] * 2), folder / "new.parquet")
    (folder / "new.parquet").rename(folder / "visits.parquet")
    again = run(service.ask(ANA, COUNT))
    assert (bool(again.spent), again.repeated) == (True, False)
    assert run(service.ask(SUE, COUNT)).repeated


def test_a_better_answer_is_still_bought_by_who_asked_for_less(make_service, run):
    service = make_service()
    closer = "DP-SELECT WITHIN 1% clinic, COUNT(*) FROM visits GROUP BY clinic"
    first = run(service.ask(SUE, closer, at_most=Fraction(1, 100)))
    assert run(service.ask(SUE, closer)).spent > first.spent
