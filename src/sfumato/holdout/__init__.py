"""The reusable holdout: many adaptive questions about rows that nobody may look at.

`plan` fixes threshold, noise and numbers of questions, `statement` says what they promise. `rows`, `values`
and `sealed` run questions so that nothing true about the holdout gets out; `mechanism` compares and answers.
`guard` and `scorer` are what people use, `leaderboard` is the Ladder. The guide is docs/holdout.md, the proof
docs/proofs/holdout.md.
"""

from sfumato.errors import HoldoutSpent, QuestionRefused
from sfumato.holdout.guard import Answer, ReusableHoldout
from sfumato.holdout.leaderboard import Leaderboard, Standing, ladder_error
from sfumato.holdout.plan import HoldoutPlan, plan_holdout
from sfumato.holdout.scorer import Scorer
from sfumato.holdout.statement import Accuracy, HoldoutPrivacy

__all__ = [
    "Accuracy",
    "Answer",
    "HoldoutPlan",
    "HoldoutPrivacy",
    "HoldoutSpent",
    "Leaderboard",
    "QuestionRefused",
    "ReusableHoldout",
    "Scorer",
    "Standing",
    "ladder_error",
    "plan_holdout",
]
