"""The certificate: every public fact and privacy figure of a release, for a machine to check."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import fields
from decimal import Decimal, localcontext
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np

from sfumato.core import __version__
from sfumato.core.cost.budget import Spent, add_costs
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import mu_to_epsilon, rho_to_epsilon
from sfumato.core.exact import NORMAL_95, format_exact, parse_delta, round_up
from sfumato.core.facts.table import Table, parse_table
from sfumato.core.ledger.chain import Entry
from sfumato.core.questions.measurement import Answer, Ask, Measurement, Request, ask_cost, find_part
from sfumato.core.questions.moments import Moments
from sfumato.core.questions.question import Queries
from sfumato.recipes.base import Plan, parse_epsilons
from sfumato.recipes.files import parse_record
from sfumato.sql.laws import note_total

FORMAT = "sfumato certificate 1"
# What a certificate calls the facts of a count.
_FACTS = {"norm": "contribution_norm", "heads": "individuals"}

# How those are added up whose answers are numbers of records or individuals.
_COUNTS = ("cells", "occupied", "capped", "clipped", "individuals")

_DELTAS = (Fraction(1, 10**6), Fraction(1, 10**9), Fraction(1, 10**12))


def build_certificate(
    plan: Plan,
    answers: tuple[Answer, ...],
    *,
    ledger: Mapping[str, Any],
    files: Mapping[str, bytes],
    facts: Mapping[str, Any],
    notes: list[str],
) -> dict[str, Any]:
    """Return the certificate of a release: its `plan`, noisy `answers`, and the `ledger` entry of its charge.

    `files` are the release's other files by name, `facts` what the recipe states of its post-processing,
    `notes` what `list_notes` finds.
    """
    table = plan.table
    return {
        "format": FORMAT,
        "unit": {
            "column": table.unit.name,
            "max_records": table.unit.max_records,
            "neighbours": table.unit.neighbours,
            **({} if table.unit.window is None else {"window": list(table.unit.window)}),
            "bounding": table.bounding,
            "grid": table.grid,
            "contribution": table.contribution,
            "bound": (
                "one individual adds at most `contribution` units of 1/`grid` to each marginal of records; "
                "where a measurement states `individuals`, `records` or `contribution_norm`, that is its "
                "bound instead; enforced while counting, not assumed"
            ),
        },
        "plan": json.loads(json.dumps(plan.to_record(), default=format_exact)),
        "plan_sha256": plan.digest,
        "measurements": [_describe_ask(table, answer.ask) for answer in answers],
        "composition": (
            "epsilons add; rhos of zero-concentrated privacy add and convert to epsilon at a delta; "
            "mus of Gaussian privacy add in squares; the smallest of the readings holds"
            + ("; of disjoint parts of the people the largest sum is charged" if plan.parts else "")
        ),
        "total": sum_costs(plan.charged(answer.ask for answer in answers), delta=plan.delta),
        "public": {
            name: {
                "from": table.columns[name].origin,
                "drafted_from_data": table.columns[name].drafted,
                "outside": table.columns[name].outside,
            }
            for name in plan.columns
        },
        **({"postprocessing": dict(facts)} if facts else {}),
        **({"notes": notes} if notes else {}),
        "ledger": dict(ledger),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
        "versions": {
            "python": platform.python_version(),
            "sfumato": __version__,
            **{name: version(name) for name in ("numpy", "pyarrow", "duckdb")},
        },
    }


def list_notes(table: Table, answers: tuple[Answer, ...]) -> list[str]:
    """Return what should be known of a release before it is used; nothing in most cases."""
    total = total_in_records(table, answers)
    found = None if total is None else note_total(*total, of="release")
    return [] if found is None else [found]


def _describe_ask(table: Table, ask: Ask) -> dict[str, Any]:
    cost = ask_cost(table, ask)
    if isinstance(ask, Request):
        sized = ask.counted.tally in ("streamed", "gradients", "arrivals")
        cells = ask.counted.size(table) if sized else table.cells(ask.columns)
        facts: dict[str, Any] = {"columns": list(ask.columns), "cells": cells}
        for key, fact in ask.counted.to_record().items():
            facts[_FACTS.get(key, key)] = _text(fact) if isinstance(fact, Fraction) else fact
        if ask.threshold is not None:
            facts["threshold"] = ask.threshold
    else:
        facts = {"candidates": ask.options}
    part = find_part(ask)
    return {
        "name": ask.name,
        **({} if part is None else {"part": part.name}),
        **facts,
        **{key: _text(value) for key, value in cost.to_record().items()},
        "epsilon": _text(cost.epsilon),
        "rho": _text(cost.rho),
        "mu": _text(cost.mu),
    }


def describe_entry(entry: Entry) -> dict[str, Any]:
    """Return what a certificate says of the charge in the ledger."""
    return {
        "sequence": entry.sequence,
        "hash": entry.hash,
        "previous": entry.previous,
        "recorded_at": entry.recorded_at,
    }


def describe_entries(entries: tuple[Entry, ...]) -> dict[str, Any]:
    """What a certificate says of the charges of a release that was charged step by step: the last first."""
    *earlier, last = (describe_entry(entry) for entry in entries)
    return {**last, "earlier": earlier}


def read_costs(certificate: Mapping[str, Any]) -> tuple[Cost, ...]:
    """Return the costs of all measurements that a certificate states."""
    keys = [each.name for each in fields(Cost)]
    return tuple(
        Cost.from_record({key: each[key] for key in keys if key in each})
        for each in certificate["measurements"]
    )


def sum_costs(costs: tuple[Cost, ...], *, delta: Fraction) -> dict[str, Any]:
    """Return the native totals of `costs`, and the smallest epsilon they prove at several deltas."""
    spent = add_costs(Spent(), costs)
    at_delta = {}
    for each in sorted({*_DELTAS, delta} - {Fraction(0)}, reverse=True):
        # What may fail takes its part of delta; readings are at the rest.
        rest = each - spent.delta
        if rest <= 0:
            continue
        readings = [rho_to_epsilon(spent.rho, rest)]
        if spent.mu_squared is not None:
            readings.append(mu_to_epsilon(math.sqrt(spent.mu_squared) * (1 + 1e-15), rest))
        if spent.epsilon is not None:
            readings.append(float(spent.epsilon))
        at_delta[_format_delta(each)] = format_exact(round_up(min(readings), places=6))
    return {
        "epsilon": _text(spent.epsilon),
        "rho": format_exact(spent.rho),
        "mu_squared": _text(spent.mu_squared),
        **({"failure": _text(spent.delta)} if spent.delta else {}),
        "epsilon_at_delta": at_delta,
    }


def read_plan(certificate: Mapping[str, Any]) -> Plan:
    """Return the plan that a certificate states, derived again from its recipe and its table."""
    record = certificate["plan"]
    (name, spec), *_ = record["table"].items()
    recipe = parse_record(record["recipe"])
    return recipe.plan(
        parse_table(name, spec),
        epsilons=parse_epsilons(record["epsilons"]),
        delta=parse_delta(record["delta"]),
    )


def pack_json(document: Mapping[str, Any]) -> bytes:
    """Return `document` as readable JSON."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _format_delta(delta: Fraction) -> str:
    """Return `delta` in the exponent form, exactly."""
    with localcontext(prec=400):
        decimal = (Decimal(delta.numerator) / Decimal(delta.denominator)).normalize()
    return f"{decimal:e}" if Fraction(decimal) == delta else format_exact(delta)


def _text(value: object) -> object:
    return format_exact(value) if isinstance(value, Fraction) else value


def total_in_records(table: Table, answers: Iterable[Answer]) -> tuple[float, float] | None:
    """Return the noisy total of all counts, and what the total of an empty table stays below with 97.5 %.

    Of the measurements whose answers add up to all that was counted, the one with the least noise of the
    sum is taken. None if there is no such measurement: queries need not give all cells the same weight.
    """
    found = []
    for measurement in answers:
        if not isinstance(measurement, Measurement):
            continue
        request, values = measurement.request, measurement.noisy_values
        if isinstance(request.counted, Moments):
            if request.counted.link is None:  # the first product is 1 for every record
                counts = (
                    values[:: request.counted.features] if request.counted.centres is not None else values[:1]
                )
                reach = request.law.half_width() * math.sqrt(counts.size)
                found.append((reach / measurement.grid, int(counts.sum(dtype=object)) / measurement.grid))
            continue
        weight = _weight_of_cells(request.queries)
        if weight is None or request.counted.tally not in _COUNTS:
            continue
        if request.threshold is not None:
            width = _reach_of_passing(request, table.cells(request.columns))
        elif values.size == 1:
            width = request.law.half_width()
        else:
            width = NORMAL_95 * request.standard_deviation * math.sqrt(values.size)
        unit = weight * measurement.grid
        found.append((width / unit, int(values.sum(dtype=object)) / unit))
    if not found:
        return None
    reach, total = min(found)
    return total, reach


def _reach_of_passing(request: Request, cells: int) -> float:
    """Return what the sum of the noise that passes the threshold of `request` in empty cells stays below."""
    # Noise that passes is the threshold and more, and how much more has a geometric law.
    step = math.expm1(min(300.0, float(1 / request.scale)))  # its square must not overflow
    mean = (request.threshold or 0) + 1 / step
    square = mean**2 + (1 + step) / step**2
    passing = cells * request.passing
    return passing * mean + NORMAL_95 * math.sqrt(passing * square)


def _weight_of_cells(queries: Queries | None) -> float | None:
    """Return the weight of a cell in the sum of all answers, if it is the same for all cells."""
    if queries is None:
        return 1.0
    sums = np.bincount(queries.members, weights=queries.weights, minlength=queries.cells)
    return float(sums[0]) / queries.grid if sums[0] > 0 and (sums == sums[0]).all() else None
