"""Files of pairs: what goes in on one line, and on the next, behind a mark, what comes out."""

import re


def read_pairs(path, *, marks=("=>",), section=None):
    """The pairs of a file, or of the part below the line `-- section`; what has no second line is its own.

    Lines that begin with -- are comments. With several `marks`, each pair has its mark as a third item.
    """
    text = path.read_text(encoding="utf-8")
    if section is not None:
        _, found, text = text.partition(f"\n-- {section}\n")
        assert found, f"{path.name} has no part {section!r}"
        text = text.partition("\n-- ")[0]
    line = rf"^(?!--|{'|'.join(marks)})(.+)$(?:\n({'|'.join(marks)}) (.+)$)?"
    pairs = re.findall(line, text, re.MULTILINE)
    return [
        (one, other or one) if len(marks) == 1 else (one, other, mark)
        for one, mark, other in ((one, mark, other) for one, mark, other in pairs)
    ]
