"""DP-SELECT: statements read, checked and planned, and noisy answers finished.

A statement goes through statement (its text), normalize (one way of writing), nested (queries around an
aggregate), check (what is allowed), relation (what can be named), sources (FROM, JOIN and WHERE; with inner,
semijoins and unions for what stands in them), settle (constants as what they meet), aggregates (the select
list), rollups (grouping sets) and planner (its plan), or rows if it asks for rows; what public facts answer
is in probes. An engine is asked what the plan says, the curator adds noise, with choices for quantiles and
labels, and with bounds that are chosen first if nobody knows them, and finish makes the answer.
"""

from sfumato.schema.table import UNIT, code_name
from sfumato.sql.aggregates import CELLS, Measure
from sfumato.sql.check import refuse, refuse_deep, refuse_large
from sfumato.sql.choices import choose_step, label_counts, quantile_ranks, quantile_scores, take_out
from sfumato.sql.chosen import choose_bounds, choose_records, covers_costs
from sfumato.sql.expected import SIZES, ExpectedError, expected_errors, note_individuals, note_noise
from sfumato.sql.finish import (
    Answer,
    Price,
    finish_query,
    note_bounds,
    note_counts,
    note_selection,
    pack_noisy,
    rehearse_query,
    sum_records,
    unpack_noisy,
)
from sfumato.sql.listing import Listing, answer_listing, read_listing
from sfumato.sql.magnitudes import CAPS, bounds_around, tally_individuals
from sfumato.sql.nested import aggregates, flatten
from sfumato.sql.normalize import bind_parameters, count_stands, find_stands, normalize, stand_in
from sfumato.sql.plan import (
    Noise,
    NoisyAggregates,
    QueryPlan,
    check_within,
    describe_scales,
    explain_query,
    half_width,
    least_epsilon,
)
from sfumato.sql.planner import plan_public, plan_query, prepare_query
from sfumato.sql.probes import is_probe, list_constants, list_labels, name_columns_of, probe_rows
from sfumato.sql.quantiles import count_levels
from sfumato.sql.relation import Catalog, Source
from sfumato.sql.rollups import sum_levels
from sfumato.sql.rows import describe_rows, finish_rows, plan_rows, selects_rows
from sfumato.sql.settle import Description, kinds_of_parameters, parameter_type, stands_for
from sfumato.sql.statement import Statement, Within, price_statement, read_statement

__all__ = [
    "CAPS",
    "CELLS",
    "SIZES",
    "UNIT",
    "Answer",
    "Catalog",
    "Description",
    "ExpectedError",
    "Listing",
    "Measure",
    "Noise",
    "NoisyAggregates",
    "Price",
    "QueryPlan",
    "Source",
    "Statement",
    "Within",
    "aggregates",
    "answer_listing",
    "bind_parameters",
    "bounds_around",
    "check_within",
    "choose_bounds",
    "choose_records",
    "choose_step",
    "code_name",
    "count_levels",
    "count_stands",
    "covers_costs",
    "describe_rows",
    "describe_scales",
    "expected_errors",
    "explain_query",
    "find_stands",
    "finish_query",
    "finish_rows",
    "flatten",
    "half_width",
    "is_probe",
    "kinds_of_parameters",
    "label_counts",
    "least_epsilon",
    "list_constants",
    "list_labels",
    "name_columns_of",
    "normalize",
    "note_bounds",
    "note_counts",
    "note_individuals",
    "note_noise",
    "note_selection",
    "pack_noisy",
    "parameter_type",
    "plan_public",
    "plan_query",
    "plan_rows",
    "prepare_query",
    "price_statement",
    "probe_rows",
    "quantile_ranks",
    "quantile_scores",
    "read_listing",
    "read_statement",
    "refuse",
    "refuse_deep",
    "refuse_large",
    "rehearse_query",
    "selects_rows",
    "stand_in",
    "stands_for",
    "sum_levels",
    "sum_records",
    "take_out",
    "tally_individuals",
    "unpack_noisy",
]
