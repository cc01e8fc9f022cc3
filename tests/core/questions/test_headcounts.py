"""Questions about individuals validate themselves, and nobody can change them afterwards."""

import numpy as np
import pytest

from sfumato.core.errors import RecipeError
from sfumato.core.questions.counts import IndividualCounts


def make(max_cells=2, cells=(4, 4, 9), times=(1, 2, 1), dtype=np.int64):
    return IndividualCounts(
        columns=("c",), max_cells=max_cells, cells=np.array(cells, dtype), times=np.array(times, dtype)
    )


@pytest.mark.parametrize("max_cells", [0, -1, 10**9 + 1, 1.0, True, "2", None])
def test_the_bound_is_a_whole_number(max_cells):
    with pytest.raises(RecipeError, match="max_cells must be a whole number"):
        make(max_cells=max_cells)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"cells": (), "times": ()}, "at least one cell"),
        ({"cells": (1, 2), "times": (1,)}, "at least one cell"),
        ({"cells": (-1, 2, 3)}, "at least one cell"),
        ({"times": (0, 1, 1)}, "at least one cell"),
        ({"cells": (9, 4, 4)}, "must ascend"),
        ({"times": (2, 1, 1)}, "must ascend"),
        ({"times": (1, 1, 1)}, "none be asked twice"),
        ({"dtype": np.float64}, "must be whole numbers"),
        ({"cells": ((4, 4, 9),), "times": ((1, 2, 1),)}, "must be whole numbers"),
    ],
)
def test_questions_are_refused_that_are_not_in_order(facts, message):
    with pytest.raises(RecipeError, match=message):
        make(**facts)


def test_numbers_beyond_64_bits_are_refused():
    with pytest.raises(RecipeError, match="at least one cell"):
        make(cells=(4, 5, 2**63 + 1), dtype=np.uint64)


def test_the_record_tells_every_question_and_the_bound():
    records = [
        make().to_record()["heads"],
        make(max_cells=3).to_record()["heads"],
        make(cells=(4, 4, 8)).to_record()["heads"],
        make(times=(1, 3, 1)).to_record()["heads"],
        make(cells=(4, 4), times=(1, 2)).to_record()["heads"],
    ]
    assert records[0] == make(dtype=np.uint16).to_record()["heads"]
    assert len({tuple(record.values()) for record in records}) == len(records)


def test_arrays_are_kept_apart_from_those_given():
    cells, times = np.array([4, 4, 9]), np.array([1, 2, 1])
    asked = IndividualCounts(columns=("c",), max_cells=2, cells=cells, times=times)
    cells[0] = 7
    assert asked.cells.tolist() == [4, 4, 9]
    with pytest.raises(ValueError, match="read-only"):
        asked.times[0] = 3
