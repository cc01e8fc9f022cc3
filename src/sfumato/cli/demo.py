"""`sfumato demo`: the whole flow on a simulated city."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from sfumato.cli.output import Force, Json, note, print_json, progress, say


def demo(
    out: Annotated[str, Option("--out", "-o", help="The folder to write.")] = "demo",
    force: Force = False,
    json: Json = False,
) -> None:
    """Release a simulated city's incidents, verify them, and make a page to explore. Takes seconds."""
    import sfumato
    from sfumato.cli.city import draw_bars, write_demo
    from sfumato.cli.output import show_check
    from sfumato.core.files import write_file
    from sfumato.report.explorer import build_explorer
    from sfumato.report.geography import read_geography
    from sfumato.report.pack import write_pack
    from sfumato.report.page import build_report

    folder = Path(out)
    write_demo(folder, force=force)
    curator = sfumato.open(folder / "sfumato.toml")
    recipe, target = folder / "monthly.toml", folder / "out"
    (note if json else say)(
        "A SIMULATED city: invented people, drawn from a public seed. Nobody's data is in here.\n"
    )
    if not json:
        show_check(curator.check(recipe))
    with progress(quiet=json) as stage:
        release = curator.release(recipe, out=target, progress=stage)
        curator.release(folder / "rows.toml", out=folder / "rows", progress=stage)
    checks = sfumato.verify(target, ledger=curator.ledger_path)
    report = curator.budget()
    page = build_report(target, ledger=report, geography=read_geography(folder / "city.geojson"), key="name")
    write_file(folder / "report.html", page, force=True)
    write_file(folder / "explore.html", build_explorer(folder / "rows"), force=True)
    write_pack(target, folder / "pack", ledger=curator.ledger_path, force=True)
    if json:
        print_json({"folder": out, "left": str(report.left), "verified": list(checks.checked)})
        return
    say(f"\n{draw_bars(release.table)}")
    say(f"\nReleased and verified; epsilon {report.left} of {report.total} left. Written to {out}:")
    for name, meaning in (
        ("incidents.parquet", "the simulated records: what would stay secret"),
        ("sfumato.toml", "the described table and its budget"),
        ("monthly.toml", "the recipe of the counts"),
        ("rows.toml", "the recipe of a model and its rows"),
        ("city.geojson", "a map of the city, made up like its people"),
        ("ledger.db", "the budget ledger"),
        ("out/table.csv", "the private counts, also as table.parquet"),
        ("out/measurements.parquet", "the noisy counts before clipping, with their noise"),
        ("out/certificate.json", "the facts of the guarantee, for a machine"),
        ("out/writeup.md", "the privacy write-up and proof, for a reviewer"),
        ("pack/decision.html", "what a compliance officer signs, with its worksheets"),
        ("rows/table.csv", "rows of nobody, drawn from the model beside them"),
        ("report.html", "the counts for people who would rather look: open it in a browser"),
        ("explore.html", "the model for people who would rather ask: open it, too"),
    ):
        say(f"  {name:26s} {meaning}")
    say(f"\nnext: sfumato budget --project {folder / 'sfumato.toml'}")
    say("      sfumato init yours.parquet > sfumato.toml")
