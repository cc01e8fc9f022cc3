"""What an audit found: findings layer by layer, a bound on epsilon, and a verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sfumato.core.errors import AuditError

Verdict = Literal["VIOLATED", "not refuted"]

LAYERS = ("lint", "noise off", "noise law", "black box", "one run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one layer has to say.

    `epsilon` is the lower bound that it proves, if it proves one; `exact` bounds follow from what was
    computed, the others hold with the confidence of the audit.
    """

    layer: int
    text: str
    violated: bool = False
    epsilon: float | None = None
    exact: bool = False

    def to_record(self) -> dict[str, Any]:
        """Returns the finding as a plain record."""
        record = asdict(self)
        return (
            {"layer": record.pop("layer"), "name": LAYERS[self.layer]}
            | record
            | {"epsilon": _plain(self.epsilon)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit of `mechanism` against its claim of `epsilon` at `delta`.

    An audit can refute a claim. It cannot prove one, so it never says more than "not refuted".
    """

    mechanism: str
    epsilon: float
    delta: float
    findings: tuple[Finding, ...]
    confidence: float = 0.95
    runs: int = 0
    pairs: int = 0
    notes: tuple[str, ...] = ()

    @property
    def epsilon_lower(self) -> float:
        """The largest lower bound on epsilon that any layer proved; 0 if none did."""
        return max((each.epsilon for each in self.findings if each.epsilon is not None), default=0.0)

    @property
    def verdict(self) -> Verdict:
        """Whether the claim is refuted."""
        return "VIOLATED" if any(each.violated for each in self.findings) else "not refuted"

    @property
    def headline(self) -> str:
        """The result in one line."""
        bounds = [each for each in self.findings if each.epsilon is not None]
        best = max(bounds, key=lambda each: each.epsilon or 0.0, default=None)
        sure = "by computation" if best is not None and best.exact else f"at {100 * self.confidence:.6g} %"
        at = f", delta {self.delta:.6g}" if self.delta else ""
        bound = "inf" if math.isinf(self.epsilon_lower) else f"{_down(self.epsilon_lower):.6g}"
        # A wrong law or a broken rule refutes a claim without a number.
        broken = dict.fromkeys(LAYERS[each.layer] for each in self.findings if each.violated)
        why = f" ({', '.join(broken)})" if broken and self.epsilon_lower <= self.epsilon else ""
        return f"epsilon >= {bound} {sure}, claim {self.epsilon:.6g}{at}: {self.verdict}{why}"

    def __str__(self) -> str:
        lines = [self.headline]
        for each in self.findings:
            mark = "!" if each.violated else " "
            lines.append(f" {mark} {each.layer} {LAYERS[each.layer]:<10} {each.text}")
        lines += [f"   note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_record(self) -> dict[str, Any]:
        """Returns the result as a plain record."""
        return asdict(self) | {
            "verdict": self.verdict,
            "epsilon_lower": _plain(self.epsilon_lower),
            "findings": [each.to_record() for each in self.findings],
            "notes": list(self.notes),
        }


def check_claim(*, epsilon: float, delta: float, confidence: float) -> None:
    """Raises an error about a claim that is none."""
    if isinstance(epsilon, bool) or not 0 <= float(epsilon) < math.inf:
        raise AuditError("the claimed epsilon must be a number of at least 0")
    if not 0 <= float(delta) < 1:
        raise AuditError("the claimed delta must be at least 0 and below 1")
    if not 0.5 <= confidence < 1:
        raise AuditError("confidence must be at least 0.5 and below 1, such as 0.95")


def _down(number: float) -> float:
    """Returns `number` rounded down to four places: a lower bound is not rounded up."""
    return math.floor(number * 10_000) / 10_000


def _plain(number: float | None) -> float | str | None:
    return "inf" if number is not None and math.isinf(number) else number
