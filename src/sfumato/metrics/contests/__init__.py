"""Contest packs as published or simulated, the entries that answer them, and the official scores."""

from sfumato.metrics.contests.entries import ENTRIES, Submission, run_entry
from sfumato.metrics.contests.packs import CONTESTS, Pack, read_pack
from sfumato.metrics.contests.scores import Score, build_board, score_pack
from sfumato.metrics.contests.simulate import make_pack

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
