"""What classes hold: the lowest and highest code, the set of codes, or the node of every column."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

import numpy as np
from numba import njit

from sfumato.anonymity.kernels.grow import join_class


@njit(cache=True, nogil=True)
def describe_classes(codes, tuple_of_entry, classes, count, space, words):
    """(first, second, bits) of every class, as classes are kept while they grow."""
    q = codes.shape[1]
    first = np.zeros((count, q), np.int64)
    second = np.zeros((count, q), np.int64)
    bits = np.zeros((count, max(1, words[q])), np.uint64)
    begun = np.zeros(count, np.bool_)
    for entry in range(classes.size):
        each = classes[entry]
        if each < 0:
            continue
        join_class(
            codes, tuple_of_entry[entry], first[each], second[each], bits[each], words, space, not begun[each]
        )
        begun[each] = True
    return first, second, bits
