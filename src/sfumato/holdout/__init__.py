"""The reusable holdout: many adaptive questions about rows that nobody may look at.

`plan` fixes threshold, noise and numbers of questions and says what they promise. `questions` runs questions
so that nothing true about the holdout gets out. `guard` compares, answers and scores; `leaderboard` is the
Ladder. The guide is docs/holdout.md, the proof docs/proofs/holdout.md.
"""

from sfumato.core.errors import HoldoutSpent, QuestionRefused
from sfumato.holdout.guard import Answer, Leaderboard, ReusableHoldout, Scorer, Standing, ladder_error
from sfumato.holdout.plan import Accuracy, HoldoutPlan, HoldoutPrivacy, plan_holdout

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
