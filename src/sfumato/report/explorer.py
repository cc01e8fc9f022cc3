"""One offline page that holds a released model and answers questions, as `sfumato sql --model` does."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from sfumato.core.errors import ReleaseError
from sfumato.core.facts.domain import Tuples, Values
from sfumato.release.ask.answer import find_acceptance, open_model
from sfumato.release.folder import open_folder
from sfumato.report.page import describe_total
from sfumato.report.pages.render import Page, render_page
from sfumato.sql.plan import MISS, normal_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.core.facts.domain import Label
    from sfumato.release.ask.answer import ReleasedModel
    from sfumato.release.ask.question import Source

    _Arrays = list[NDArray[np.float64]]

_MOST = 5_000_000  # bytes of a page, which a phone opens and a letter carries


def build_explorer(folder: Path | str, *, epsilon: object = None) -> Page:
    """Returns a page with the model of the release in `folder`; `epsilon` chooses if it holds several.

    Everything in it is public already.
    """
    opened = open_folder(folder, load=())
    if "model.parquet" not in opened.certificate["files"]:
        raise ReleaseError(
            f"the release {opened.name!r} holds no model to ask; draw it with: sfumato report FOLDER"
        )
    released = open_model(folder, epsilon=epsilon)
    record, arrays = _describe(released)
    numbers = np.concatenate([each.reshape(-1) for each in arrays]).astype("<f8")
    # Bytes of the same weight stand together, since those of counts and of short numbers are mostly zero.
    packed = gzip.compress(numbers.view(np.uint8).reshape(-1, 8).T.tobytes(), 9, mtime=0)
    page = render_page(
        "explore/page.html",
        table=released.table.name,
        internal=False,
        records=released.model.total,
        total=describe_total(opened.certificate),
        about=Markup(json.dumps(record, ensure_ascii=False).replace("<", "\\u003c")),
        numbers=base64.b64encode(packed).decode(),
    )
    if len(page) > _MOST:
        raise ReleaseError(
            f"a page with this model would have {len(page) / 1e6:,.0f} MB, the most is {_MOST / 1e6:.0f}; "
            "ask the release with: sfumato sql --model FOLDER"
        )
    return page


def _describe(released: ReleasedModel) -> tuple[dict[str, Any], _Arrays]:
    """Returns what the page's script is told of a model, and the numbers that this leaves out."""
    tree = released.model.tree
    places = {name: place for place, name in enumerate(tree.domain)}
    arrays = [released.model.table(place) for place in range(len(tree.cliques))]
    sources = (*released.measured.wholes, released.measured.joined)
    described = [None if each is None else _describe_source(each, places, arrays) for each in sources]
    centres, firsts, lasts = (each.tolist() for each in find_acceptance())
    return {
        "table": released.table.name,
        "fields": [
            {
                "name": field.name,
                "column": places[field.column],
                "labels": list(map(_show_label, field.labels)),
                "ends": field.ends and [[float(low), float(high)] for low, high in field.ends],
                "ordered": not isinstance(released.table.column(field.column).domain, (Values, Tuples)),
            }
            for field in released.fields.named.values()
        ],
        "model": {
            "sizes": list(tree.domain.values()),
            "cliques": [[places[name] for name in clique] for clique in tree.cliques],
            "parents": list(tree.parents),
            "separators": [[places[name] for name in each] for each in tree.separators],
            "total": released.model.total,
        },
        "wholes": described[:-1],
        "joined": described[-1],
        "acceptance": {
            "centres": centres,
            "firsts": firsts[1:],
            "lasts": lasts,
            "width": normal_width(MISS),
        },
    }, arrays


def _describe_source(source: Source, places: dict[str, int], arrays: _Arrays) -> dict[str, Any]:
    evidence = source.evidence
    arrays += [each.values for each in evidence.measured]
    return {
        "sizes": [evidence.sizes.get(name, 0) for name in places],
        "step": source.step,
        "width": source.width,
        "normal": not source.has_laplace,
        "contrasts": evidence.has_contrasts,
        "maps": {places[name]: codes.tolist() for name, codes in source.maps.items()},
        "counts": [
            {
                "columns": [places[name] for name in each.columns],
                "variance": each.variance,
                "added": None if each.added is None else each.added.tolist(),
                "along": [places[name] for name in each.along],
            }
            for each in evidence.measured
        ],
    }


def _show_label(label: Label) -> object:
    return label if isinstance(label, int) and abs(label) < 2**53 else str(label)
