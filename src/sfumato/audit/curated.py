"""The audit of a recipe or a statement: all layers, on tables made up from the project's public facts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sfumato.audit.blackbox import certify_samples
from sfumato.audit.callables import check_claim
from sfumato.audit.canaries import try_canaries
from sfumato.audit.desk import Desk
from sfumato.audit.drawn import draw_sides
from sfumato.audit.laws import check_laws
from sfumato.audit.lint import check_charges, note_facts
from sfumato.audit.noise_off import compare_neighbours, run_base
from sfumato.audit.result import Audit, Finding

if TYPE_CHECKING:
    from sfumato.audit.desk import Subject
    from sfumato.audit.noise_off import Claim, Compared
    from sfumato.schema import Project

Effort = Literal["fast", "normal", "thorough"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    thorough: bool
    draws: int
    runs: int
    canaries: int


EFFORTS: dict[str, _Settings] = {
    "fast": _Settings(thorough=False, draws=4_000, runs=1_000, canaries=0),
    "normal": _Settings(thorough=False, draws=20_000, runs=10_000, canaries=256),
    "thorough": _Settings(thorough=True, draws=200_000, runs=200_000, canaries=2_000),
}


def audit_subject(
    subject: Subject,
    project: Project,
    *,
    claim: Claim,
    effort: Effort = "normal",
    runs: int | None = None,
    confidence: float = 0.95,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """What all layers say about `subject`; `claim` tells epsilon and delta once the costs are known.

    Layers 0 and 1 leave nothing to chance. The other three share the chance of a false alarm equally.
    """
    settings = EFFORTS[effort]
    miss = (1 - confidence) / 3
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(project, subject, Path(folder))
        progress("lint")
        answered = run_base(desk, crowd=True).answered
        epsilon, delta = claim(answered)
        check_claim(epsilon=epsilon, delta=delta, confidence=confidence)
        findings = list(check_charges(desk.table, answered, epsilon=epsilon, delta=delta))
        compared = compare_neighbours(desk, claim=claim, thorough=settings.thorough, progress=progress)
        epsilon, delta = claim(compared.base.answered)
        findings += compared.findings
        findings += check_laws(compared.base.watch.asked, miss=miss, draws=settings.draws, progress=progress)
        findings += _check_seed(desk, compared)
        wanted = settings.runs if runs is None else runs
        findings += _draw_worst(compared, epsilon=epsilon, delta=delta, runs=wanted, miss=miss)
        if settings.canaries:
            found = try_canaries(
                desk, most=settings.canaries, epsilon=epsilon, delta=delta, miss=miss, progress=progress
            )
            findings += [] if found is None else [found]
        return Audit(
            mechanism=subject.name,
            epsilon=epsilon,
            delta=delta,
            findings=tuple(findings),
            confidence=confidence,
            runs=2 * wanted,
            pairs=compared.pairs,
            notes=note_facts(desk.table),
        )


def _draw_worst(compared: Compared, *, epsilon: float, delta: float, runs: int, miss: float) -> list[Finding]:
    moves = compared.worst_moves
    if not runs or not any(moved.amounts for moved in moves):
        return []
    samples = draw_sides(compared.base.watch.asked, moves, runs=runs)
    found = certify_samples(*samples, delta=delta, miss=miss)
    return [
        Finding(
            layer=3,
            text=f"the worst pair with noise: {found}",
            violated=found.epsilon > epsilon,
            epsilon=found.epsilon,
        )
    ]


def _check_seed(desk: Desk, compared: Compared) -> list[Finding]:
    """Two runs as a release makes them: the same noise twice would be a seed."""
    plenty = sum(
        each.true_values.size
        for each in compared.base.watch.asked
        if each.kind in ("laplace", "gaussian") and each.scale >= 4
    )
    if plenty < 20:  # equal by chance too often
        return []
    seen = [dict(desk.run((), None).seen) for _ in range(2)]
    answers = [{k: v for k, v in each.items() if k.startswith("answer")} for each in seen]
    if answers[0] != answers[1]:
        return []
    return [Finding(layer=2, text="two runs had the same noise: it comes from a seed", violated=True)]
