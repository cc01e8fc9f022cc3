"""DP-SELECT: statements read, checked and planned, and noisy answers finished. Sees no record."""

from sfumato.sql.aggregates import Aggregate, Measure, label_counts, take_out
from sfumato.sql.check import refuse
from sfumato.sql.finish import (
    Answer,
    NoisyAggregates,
    Ranks,
    choose_step,
    finish_query,
    note_counts,
    pack_noisy,
    quantile_ranks,
    quantile_scores,
    unpack_noisy,
)
from sfumato.sql.intervals import check_within, describe_scales, explain_query, half_width, least_epsilon
from sfumato.sql.plan import Noise, QueryPlan, plan_public, plan_query, prepare_query
from sfumato.sql.relation import CELLS, UNIT, Catalog, Source, code_name
from sfumato.sql.rows import RowPlan, finish_rows, plan_rows, selects_rows
from sfumato.sql.statement import Statement, Within, read_statement

__all__ = [
    "CELLS",
    "UNIT",
    "Aggregate",
    "Answer",
    "Catalog",
    "Measure",
    "Noise",
    "NoisyAggregates",
    "QueryPlan",
    "Ranks",
    "RowPlan",
    "Source",
    "Statement",
    "Within",
    "check_within",
    "choose_step",
    "code_name",
    "describe_scales",
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
