"""Makes the search of the documentation's site work from a disk, where a page may load only scripts.

MkDocs calls `on_post_build` when the site is written: the index becomes part of the one script that searches.
"""

import json
from pathlib import Path

SCRIPT = Path(__file__).with_name("search.js")


def build_script(pages: list[dict[str, str]]) -> str:
    """The script, with the title, the text and the place of every section of every page."""
    # A page is listed with all of its text, and again section by section, which is nearer to what is sought.
    parted = {page["location"].partition("#")[0] for page in pages if "#" in page["location"]}
    kept = [
        {key: page[key] for key in ("location", "title", "text")}
        for page in pages
        if page["location"] not in parted
    ]
    listed = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    return f"const pages = {listed};\n{SCRIPT.read_text(encoding='utf-8')}"


def on_post_build(config: dict) -> None:
    """Puts our script in place of the one that asks a server for the index."""
    folder = Path(config["site_dir"]) / "search"
    index = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))
    (folder / "main.js").write_text(build_script(index["docs"]), encoding="utf-8")
    for name in ("lunr.js", "worker.js", "search_index.json"):
        (folder / name).unlink(missing_ok=True)
