"""What may be asked of a table, with its size, its sensitivity and its cost; all of it public.

`counts` has what is counted and what one individual adds to it, `choices` what is chosen privately,
`measurement` requests with their noise and their answers.
"""

from sfumato.questions.choices import (
    AnyChoice,
    Candidate,
    CapChoice,
    Choice,
    Chosen,
    NormChoice,
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
    total_in_records,
)

__all__ = [
    "LARGEST_SCALE",
    "NORM_GRID",
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
    "IndividualCounts",
    "Marginal",
    "Measurement",
    "NoiseKind",
    "NormChoice",
    "OccupiedCells",
    "Queries",
    "Request",
    "ask_cost",
    "in_records",
    "measure_distance",
    "note_total",
    "request_cost",
    "request_grid",
    "request_sensitivity",
    "request_size",
    "total_in_records",
]
