"""A recorder of noise: what was drawn beside what the ledger was charged, in kind, scale and number."""

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from unittest import mock

from sfumato.accounting import Cost, Ledger
from sfumato.audit.noise_off import NoiseRequest, RecordingNoise
from sfumato.core import door
from sfumato.core.algebra.asks import list_costs
from sfumato.core.algebra.measures import check_query
from sfumato.core.cost.parallel import Allowance
from sfumato.core.door import Charged
from sfumato.core.questions.measurement import find_part
from sfumato.sql import asks

KINDS = {"selection": "laplace", "sparse": "laplace", "choice": "exponential", "sampled": "gaussian"}
KINDS["flip"] = "permute-and-flip"
DRAWERS = ("add_noise", "add_sparse_noise", "exponential_choice", "permute_and_flip", "poisson_sample")


@dataclass
class Charge:
    """A charge and every draw between it and the next; `stated` are the costs of what a statement asked.

    `part` says that an earlier charge has paid for it.
    """

    costs: tuple[Cost, ...]
    part: bool
    draws: list[NoiseRequest] = field(default_factory=list)
    stated: list[Cost] = field(default_factory=list)


@contextmanager
def watch_draws(mode="off"):
    """Within, the charges of all ledgers as they are made, each with the noise that is drawn after it.

    With the mode "off" nothing is added to the exact values. Noise that is drawn before any charge fails.
    """
    charges, noise = [], RecordingNoise(mode=mode)
    charge_ledger, ask = Ledger.charge, Charged.ask_groups

    def charge(self, **facts):
        entry = charge_ledger(self, **facts)
        charges.append(Charge(entry.costs, facts.get("part_of") is not None))
        return entry

    def ask_groups(charge, asked, **given):
        checked = check_query(asked.query, charge._bill.described)
        charges[-1].stated += list_costs(checked, asked)
        return ask(charge, asked, **given)

    def record(name):
        def drawer(*given, **named):
            assert charges, "noise is drawn before anything is charged"
            found = getattr(noise, name)(*given, **named)
            charges[-1].draws += noise.requests[sum(len(each.draws) for each in charges) :]
            return found

        return drawer

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(Ledger, "charge", charge))
        patches.enter_context(mock.patch.object(Charged, "ask_groups", ask_groups))
        for name in DRAWERS:
            patches.enter_context(mock.patch(f"sfumato.core.noise.{name}", record(name)))
        yield charges


def change_draws(patch, draw):
    """Has statements answered by `draw(plan, exact, source)`; returns what the door draws for such a plan."""
    plans, ask_plan, plain = [], asks.ask_plan, door.draw_groups

    def keep(plan):
        asked = ask_plan(plan)
        plans.append((asked, replace(plan, choices=(), tally=None)))  # what was chosen before is asked apart
        return asked

    def find_plan(asked):
        # The door asks by a copy of its own.
        return next(plan for each, plan in reversed(plans) if each == asked)

    def draw_plan(plan, exact, source):
        return plain(ask_plan(plan), exact, source)

    patch.setattr(asks, "ask_plan", keep)
    patch.setattr(door, "draw_groups", lambda asked, exact, source: draw(find_plan(asked), exact, source))
    return draw_plan


def find_miscount(draws, costs):
    """How the noise that was drawn is another than `costs` state, or None: kind, scale, sample and number.

    The rate of a choice is not compared: it follows from how far one individual moves the scores.
    """
    drawn, stated = Counter(map(_law, draws)), Counter()
    for cost in costs:
        stated[_law(cost)] += cost.count
    if drawn == stated:
        return None
    return f"drawn, not charged: {_show(drawn - stated)}; charged, not drawn: {_show(stated - drawn)}"


def find_overdraft(charges, release=None):
    """How what was drawn under `charges` is not what they paid for, or None.

    Where the ledger holds the most that later steps may cost, what these state must fit in it: the answers
    of `release`, or the plans of a statement.
    """
    for charge in charges:
        costs = charges[0].costs if charge.part else charge.costs
        found = find_miscount(charge.draws, costs)
        if found is None:
            continue
        asks = [(cost, None) for cost in charge.stated]
        if release is not None:
            stated = [read_cost(each) for each in release.certificate["measurements"]]
            asks = list(zip(stated, (find_part(each.ask) for each in release.answers), strict=True))
        if not asks:
            return found
        found = find_miscount(charge.draws, [cost for cost, _ in asks]) or _find_excess(asks, costs)
        if found is not None:
            return found
    return None


def _find_excess(asks, costs):
    """Whether costs, each with the part of the people that pays it, are more than was charged."""
    allowance = Allowance(costs)
    for cost, part in asks:
        if not allowance.pay(cost, part=part and part.name):
            return f"{cost} was drawn, which nothing is left of the charge to pay for"
    return None


def read_cost(record):
    """The cost of one measurement in a certificate."""
    names = {each.name for each in fields(Cost)}
    return Cost.from_record({name: value for name, value in record.items() if name in names})


def _law(drawn):
    """Kind, scale and sample of a draw or of a cost."""
    kind = KINDS.get(drawn.kind, drawn.kind)
    return kind, None if kind in ("exponential", "permute-and-flip") else drawn.scale, drawn.sampling


def _show(laws):
    found = (f"{times} x {kind} of scale {scale}" for (kind, scale, _), times in laws.items())
    return ", ".join(found) or "nothing"
