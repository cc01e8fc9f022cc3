"""`sfumato contest`: contest packs made, answered by the entries of public documents, and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from sfumato.cli.output import Force, Json, note, print_json, print_result, progress, say

contest = typer.Typer(
    help="Contest packs: simulated, answered by an entry, and scored.",
    no_args_is_help=True,
)

PackFolder = Annotated[str, Argument(help="The folder of the pack.")]
Public = Annotated[str | None, Option("--public", help="Public records; public.csv in the pack by default.")]


@contest.command()
def make(
    name: Annotated[Literal["sprint1", "sprint3", "match3"], Argument(help="Which contest.")],
    out: Annotated[str, Argument(help="The folder to write.")],
    people: Annotated[int | None, Option(help="How many people are simulated.")] = None,
    seed: Annotated[int, Option(help="What all is drawn from.")] = 1940,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a simulated pack in the official format: private records, public ones, and what is published."""
    from sfumato.metrics.contests import make_pack

    folder = make_pack(name, out, people=people, seed=seed, force=force)
    files = sorted(each.name for each in folder.iterdir())
    text = f"Wrote {folder}: {', '.join(files)}. Everybody in it is simulated."
    print_result({"contest": name, "pack": str(folder), "files": files}, text, json=json)


@contest.command()
def run(
    entry: Annotated[
        Literal["nmd", "syncity", "adaptive-granularity", "gardn999", "best"],
        Argument(help="The entry as its document describes it, or our best."),
    ],
    pack: PackFolder,
    out: Annotated[
        str | None, Option("--out", "-o", help="The folder to write; PACK/ENTRY by default.")
    ] = None,
    ledger: Annotated[
        Literal["one", "each"], Option(help="One ledger for all epsilons, or one each.")
    ] = "one",
    as_written: Annotated[
        bool, Option("--as-written", help="The document's own noise, charged what it truly costs.")
    ] = False,
    public: Public = None,
    max_records: Annotated[
        int | None, Option(help="The announced bound, where parameters state another.")
    ] = None,
    rows: Annotated[int | None, Option(help="match3: how many rows to hand in.")] = None,
    seed: Annotated[int, Option(help="What rows are drawn from.")] = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Answer a pack: a submission, a certificate for every epsilon, a write-up in the document's sections."""
    from sfumato.metrics.contests import read_pack, run_entry

    with progress(quiet=json) as stage:
        done = run_entry(
            read_pack(pack, public=public, max_records=max_records),
            entry,
            out=out,
            ledger=ledger,
            as_written=as_written,
            rows=rows,
            seed=seed,
            force=force,
            progress=stage,
        )
    document = {
        "contest": done.contest,
        "entry": done.entry,
        "folder": str(done.folder),
        "files": sorted(done.files),
        "charged": list(done.charged),
        "notes": list(done.notes),
    }
    text = f"Wrote {done.folder}: {', '.join(sorted(done.files))}, and a release for every epsilon."
    print_result(document, text, json=json)
    for line in () if json else done.notes:
        note(line)


@contest.command()
def score(
    packs: Annotated[list[str], Argument(metavar="PACK...", help="The folders of packs.")],
    truth: Annotated[
        str | None, Option(help="The records to compare with; those of the pack by default.")
    ] = None,
    html: Annotated[str | None, Option(help="Also write a page with the scores.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Score the submissions in packs by the official metrics, beside zeros and a half sample: INTERNAL."""
    from sfumato.core.errors import MetricError
    from sfumato.core.exact import format_exact
    from sfumato.core.files import check_file, write_file
    from sfumato.metrics import INTERNAL
    from sfumato.metrics.contests import build_board, read_pack, score_pack

    if truth is not None and len(packs) > 1:
        raise MetricError("--truth names the records of one pack; score packs one by one with it")
    if html is not None:
        check_file(Path(html), force=force)
    with progress(quiet=json) as stage:
        opened = [read_pack(each) for each in packs]
        boards = [(pack, score_pack(pack, truth=truth, progress=stage)) for pack in opened]
    if html is not None:
        write_file(Path(html), build_board(boards), force=force)
    if json:
        scores = [
            {
                "pack": pack.folder.name,
                "contest": pack.contest,
                "entry": each.entry,
                "epsilon": None if each.epsilon is None else format_exact(each.epsilon),
                "score": each.score,
                **each.parts,
            }
            for pack, found in boards
            for each in found
        ]
        print_json({"internal": INTERNAL, "scores": scores})
        return
    note(INTERNAL)
    for pack, found in boards:
        parts = list(dict.fromkeys(part for each in found for part in each.parts))
        lines = [("entry", "epsilon", "score", *parts)]
        for each in found:
            epsilon = "" if each.epsilon is None else format_exact(each.epsilon)
            numbers = (_show(each.parts.get(part)) for part in parts)
            lines.append((each.entry, epsilon, _show(each.score), *numbers))
        say(f"{pack.folder.name} ({pack.contest})")
        for first, *others in lines:
            say(f"  {first:32s}" + "".join(f"{text:>13s}" for text in others))


def _show(number: float | None) -> str:
    return "" if number is None else f"{number:.4g}"
