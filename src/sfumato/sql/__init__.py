"""DP-SELECT: statements read, checked and planned, and noisy answers finished.

A statement goes through statement (its text), check (what is allowed), relation (FROM and WHERE),
aggregates (the select list) and query (its plan), or rows if it asks for rows. An engine is asked what the
plan says, the curator adds noise, with choices for quantiles and labels, and finish makes the answer.
"""

from sfumato.sql.aggregates import CELLS, Measure
from sfumato.sql.check import refuse
from sfumato.sql.choices import choose_step, label_counts, quantile_ranks, quantile_scores, take_out
from sfumato.sql.finish import (
    Answer,
    NoisyAggregates,
    Price,
    finish_query,
    note_counts,
    pack_noisy,
    unpack_noisy,
)
from sfumato.sql.plan import (
    Noise,
    QueryPlan,
    check_within,
    describe_scales,
    expected_errors,
    explain_query,
    half_width,
    least_epsilon,
)
from sfumato.sql.planner import plan_public, plan_query, prepare_query
from sfumato.sql.relation import UNIT, Catalog, Source, code_name
from sfumato.sql.rows import finish_rows, plan_rows, selects_rows
from sfumato.sql.statement import Statement, Within, read_statement

__all__ = [
    "CELLS",
    "UNIT",
    "Answer",
    "Catalog",
    "Measure",
    "Noise",
    "NoisyAggregates",
    "Price",
    "QueryPlan",
    "Source",
    "Statement",
    "Within",
    "check_within",
    "choose_step",
    "code_name",
    "describe_scales",
    "expected_errors",
    "explain_query",
    "finish_query",
    "finish_rows",
    "half_width",
    "label_counts",
    "least_epsilon",
    "note_counts",
    "pack_noisy",
    "plan_public",
    "plan_query",
    "plan_rows",
    "prepare_query",
    "quantile_ranks",
    "quantile_scores",
    "read_statement",
    "refuse",
    "selects_rows",
    "take_out",
    "unpack_noisy",
]
