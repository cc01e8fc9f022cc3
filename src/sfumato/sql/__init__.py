"""DP-SELECT: statements read, checked and planned, and noisy answers finished. Sees no record."""

from sfumato.sql.aggregates import Aggregate, Measure
from sfumato.sql.answer import Answer, pack_noisy, unpack_noisy
from sfumato.sql.check import refuse
from sfumato.sql.explain import describe_scales, explain_query
from sfumato.sql.finish import NoisyAggregates, finish_query, note_counts
from sfumato.sql.intervals import half_width
from sfumato.sql.modes import label_counts, take_out
from sfumato.sql.plan import CELLS, Noise, QueryPlan, plan_query, prepare_query
from sfumato.sql.public import plan_public
from sfumato.sql.quantiles import Ranks, choose_step, quantile_ranks, quantile_scores
from sfumato.sql.relation import UNIT, Catalog, Source, code_name
from sfumato.sql.rows import RowPlan, finish_rows, plan_rows, selects_rows
from sfumato.sql.statement import Statement, Within, read_statement
from sfumato.sql.within import check_within, least_epsilon

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
