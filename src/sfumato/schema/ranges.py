"""Long lists of whole numbers, written as runs: special bins of numeric fields."""

from __future__ import annotations

from sfumato.errors import SchemaError

_MOST_VALUES = 2_000_000


def parse_ranges(value: object) -> tuple[int, ...]:
    """The whole numbers that a list of [first, last], [first, last, step] or single numbers stands for.

    >>> parse_ranges([[0, 3], [10, 30, 10], 99])
    (0, 1, 2, 3, 10, 20, 30, 99)
    """
    entries = value if isinstance(value, list) else []
    numbers: list[int] = []
    for entry in entries:
        parts = entry if isinstance(entry, list) else [entry]
        if not 1 <= len(parts) <= 3 or not all(type(part) is int for part in parts):
            raise SchemaError("ranges must list [first, last], [first, last, step] or single whole numbers")
        first, last = parts[0], parts[1] if len(parts) > 1 else parts[0]
        step = parts[2] if len(parts) == 3 else 1
        if first > last or step < 1:
            raise SchemaError(f"ranges: [{first}, {last}] is empty, or its step is not positive")
        if (last - first) // step + len(numbers) >= _MOST_VALUES:
            raise SchemaError(f"ranges hold more than {_MOST_VALUES:,} values; declare bins instead")
        numbers.extend(range(first, last + 1, step))
    if not numbers:
        raise SchemaError("ranges must be a list such as [[0, 5000], [999998]]")
    return tuple(numbers)


def find_ranges(values: tuple[object, ...]) -> list[int | list[int]]:
    """The runs that a list of whole numbers is made of, in its order.

    >>> find_ranges((*range(100), 500))
    [[0, 99], 500]
    """
    numbers = [value for value in values if isinstance(value, int)]
    runs: list[int | list[int]] = []
    place = 0
    while place < len(numbers):
        step = numbers[place + 1] - numbers[place] if place + 1 < len(numbers) else 0
        end = place + 1
        while step > 0 and end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if end - place < 3:
            runs.append(numbers[place])
            place += 1
            continue
        first, last = numbers[place], numbers[end - 1]
        runs.append([first, last] if step == 1 else [first, last, step])
        place = end
    return runs
