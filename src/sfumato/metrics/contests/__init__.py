"""Contest packs as published or simulated, the entries that answer them, and the official scores."""

from sfumato.metrics.contests.entries import ENTRIES, Score, Submission, build_board, run_entry, score_pack
from sfumato.metrics.contests.packs import CONTESTS, Pack, make_pack, read_pack

__all__ = [
    "CONTESTS",
    "ENTRIES",
    "Pack",
    "Score",
    "Submission",
    "build_board",
    "make_pack",
    "read_pack",
    "run_entry",
    "score_pack",
]
