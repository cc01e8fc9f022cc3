"""`sfumato sql -f FILE --epsilon E`: the statements of a file, planned and bought together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sfumato.cli.display import show_answer
from sfumato.cli.output import note, open_curator, print_json, progress, say
from sfumato.cli.script import split_script
from sfumato.cli.shell import read_lines
from sfumato.core.errors import RecipeError, UnsupportedQuery
from sfumato.core.exact import format_short

if TYPE_CHECKING:
    from sfumato.cli.display import Mode
    from sfumato.sql.finish import Answer

_NUMBERED = re.compile(r"statement (\d+) of the workload")


def run_workload(
    project: str, file: str, epsilon: str, delta: str, *, plan: bool, mode: Mode, quiet: bool
) -> Answer | None:
    """Plans the statements of a file together and, unless only the `plan` is wanted, buys and prints them.

    `epsilon` and `delta` are what all of them may spend. Gives the last answer; `quiet` prints none.
    """
    curator = open_curator(project)
    pieces = list(split_script(read_lines(file)))
    texts = [piece.text.rstrip(";") for piece in pieces]
    with progress(quiet=mode == "json") as stage:
        stage("planning")
        try:
            workload = curator.sql_workload(texts, epsilon=epsilon, delta=delta, progress=stage)
        except (RecipeError, UnsupportedQuery) as error:
            found = _NUMBERED.match(str(error))
            where = "" if found is None else f"{file}, line {pieces[int(found[1]) - 1].line}: "
            raise type(error)(f"{where}{error}") from None
        answers = [] if plan else workload.buy()
    if plan and mode == "json":
        print_json(workload.to_record())
    elif plan:
        say(str(workload))
    for answer in () if quiet else answers:
        show_answer(answer, mode)
        for each in answer.notes if mode != "json" else ():
            note(each)
    if not plan:
        spent = sum((answer.spent for answer in answers), start=answers[0].spent * 0)
        note(f"spent epsilon {format_short(spent)} on all; epsilon {curator.budget().left} left")
    return answers[-1] if answers else None
