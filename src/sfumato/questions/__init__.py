"""What may be asked of a table, with its size, its sensitivity and its cost; all of it public.

`counts` has what is counted and what one individual adds to it, `choices` what is chosen privately,
`measurement` requests with their noise and their answers.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lend_names

if TYPE_CHECKING:
    from sfumato.questions.choices import (
        AnyChoice,
        Candidate,
        CapChoice,
        Choice,
        Chosen,
        NormChoice,
        Question,
        check_question,
        measure_distance,
    )
    from sfumato.questions.counts import (
        NORM_GRID,
        CappedMarginal,
        ClippedMarginal,
        Counted,
        IndividualCounts,
        Marginal,
        OccupiedCells,
        Queries,
    )
    from sfumato.questions.gradients import (
        GRADIENT_GRID,
        INPUT_GRID,
        WEIGHT_GRID,
        Gradients,
        Layers,
    )
    from sfumato.questions.measurement import (
        LARGEST_SCALE,
        Answer,
        Ask,
        Measurement,
        NoiseKind,
        Request,
        ask_cost,
        in_records,
        note_total,
        request_cost,
        request_grid,
        request_sensitivity,
        request_size,
        take_part,
        total_in_records,
    )
    from sfumato.questions.moments import (
        LARGEST_CURVATURE,
        LARGEST_WEIGHT,
        LINK_GRID,
        MOMENT_WEIGHTS,
        SCORE_GRID,
        LinkWeights,
        Moments,
    )
    from sfumato.questions.outcomes import Outcomes, Scorer
    from sfumato.questions.residuals import Link, Residuals, Term
    from sfumato.questions.series import MOST_PERIODS, SERIES_GRID, RunningSums

__all__ = [
    "GRADIENT_GRID",
    "INPUT_GRID",
    "LARGEST_CURVATURE",
    "LARGEST_SCALE",
    "LARGEST_WEIGHT",
    "LINK_GRID",
    "MOMENT_WEIGHTS",
    "MOST_PERIODS",
    "NORM_GRID",
    "SCORE_GRID",
    "SERIES_GRID",
    "WEIGHT_GRID",
    "Answer",
    "AnyChoice",
    "Ask",
    "Candidate",
    "CapChoice",
    "CappedMarginal",
    "Choice",
    "Chosen",
    "ClippedMarginal",
    "Counted",
    "Gradients",
    "IndividualCounts",
    "Layers",
    "Link",
    "LinkWeights",
    "Marginal",
    "Measurement",
    "Moments",
    "NoiseKind",
    "NormChoice",
    "OccupiedCells",
    "Outcomes",
    "Queries",
    "Question",
    "Request",
    "Residuals",
    "RunningSums",
    "Scorer",
    "Term",
    "ask_cost",
    "check_question",
    "in_records",
    "measure_distance",
    "note_total",
    "request_cost",
    "request_grid",
    "request_sensitivity",
    "request_size",
    "take_part",
    "total_in_records",
]

__getattr__, __dir__ = lend_names(__name__)
