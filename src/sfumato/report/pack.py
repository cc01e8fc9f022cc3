"""What a compliance officer signs: a release's guarantee in the forms that others ask for.

An entry for a registry of deployments, a reviewer's checklist, the record of an output checker, the criteria
of regulators, templates of two standards, CSVW metadata, and a page for the decision. All follow from the
certificate and its noise alone; what only the curator of the data knows is left open by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from sfumato.core import __version__
from sfumato.core.errors import ReleaseError, SfumatoError
from sfumato.core.files import MOST_TEXT, read_regular
from sfumato.recipes.base import cite_claims
from sfumato.release.certificate import pack_json
from sfumato.release.folder import open_folder, write_folder
from sfumato.release.verification import verify
from sfumato.report.explain.posterior import RARITIES, posterior_bounds, read_total
from sfumato.report.facts import estimate_counts, read_facts
from sfumato.report.pages.render import render_page, render_text

OPEN = "to be stated by the curator"
"""What stands where only the curator knows."""

_LARGE, _VERY_LARGE = 1, 10  # where guidance on epsilon begins to warn, and warns strongly


def describe_deployment(folder: Path | str, **stated: str) -> dict[str, Any]:
    """Return the entry of the release in `folder` for a registry of deployments, from its certificate.

    `stated` are facts that only the curator knows, such as `curator`, `contact`, `intended_use`,
    `data_subjects`, `source_period` and `rationale`.
    """
    certificate = open_folder(folder, load=()).certificate
    plan, unit, total = certificate["plan"], certificate["unit"], certificate["total"]
    ((name, table),) = plan["table"].items()
    sampled = any("sampled" in str(each.get("kind")) for each in certificate["measurements"])
    product = ("curator", "contact", "intended_use", "data_subjects", "source_period")
    return {
        "product": {
            "description": f"{plan['recipe']['recipe']} of table {name}",
            "files": sorted(certificate["files"]),
            "date": certificate["ledger"].get("recorded_at", OPEN),
            **{key: stated.get(key, OPEN) for key in product},
        },
        "privacy": {
            "flavour": "pure differential privacy"
            if total["epsilon"] is not None
            else "approximate, by zCDP",
            "unit": _tell_unit(table["unit"]),
            "contribution": f"at most {unit['max_records']} records of one individual count"
            + ", each by a weight" * (unit["bounding"] == "weight"),
            "neighbours": unit["neighbours"],
            "epsilon": total["epsilon"],
            "rho": total["rho"],
            "epsilon_at_delta": total["epsilon_at_delta"],
            "deployment_model": "central",
            "rationale": stated.get("rationale", OPEN),
        },
        "accounting": {
            "measurements": certificate["measurements"],
            "composition": certificate["composition"],
            "subsampling": "stated with each measurement" if sampled else "none",
            "post_processing": "everything after the measurements; `sfumato verify` derives it again",
            "ledger_entry": certificate["ledger"],
        },
        "data": {
            "domain": table["columns"],
            "public_inputs": certificate["public"],
            "unprotected": _list_unprotected(certificate),
        },
        "implementation": {
            "library": "sfumato",
            "versions": certificate["versions"],
            "noise": "exact discrete Laplace and Gaussian, entropy of the operating system, no seed",
            "arithmetic": "whole numbers up to the noise",
            "plan_sha256": certificate["plan_sha256"],
            "notes": certificate.get("notes", []),
        },
    }


def write_checklist(folder: Path | str, **stated: str) -> str:
    """Return the points that NIST SP 800-226 asks a reviewer to look at, from the certificate; Markdown."""
    return render_text("report/checklist.txt", **_describe(folder, stated)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupErrors:
    """How far the counts of a column's groups may be off: the `half` of 95 % intervals, against noisy counts.

    `weak` are the groups, smallest first, whose interval is wider than a tenth of their count either way.
    """

    column: str
    groups: int
    half: float
    smallest: float
    largest: float
    weak: tuple[str, ...]


def find_group_errors(folder: Path | str) -> tuple[GroupErrors, ...]:
    """Return the error of every group that a released column names, from the noise; costs nothing.

    A column is left out where the noise of its counts is not known; all are where no records are counted.
    """
    try:
        facts = read_facts(folder)
        estimates = [(field, estimate_counts(facts, (field,))) for field in facts.shown if field.size > 1]
    except (SfumatoError, ValueError, KeyError):
        return ()
    found = []
    for field, estimate in estimates:
        if estimate.halves is None:
            continue
        counts = [max(float(each), 0.0) for each in estimate.values]
        halves = [float(each) for each in estimate.halves]
        order = sorted(range(field.size), key=lambda place: counts[place])
        weak = tuple(field.labels[place] for place in order if halves[place] > counts[place] / 10)
        found.append(
            GroupErrors(
                column=field.name,
                groups=field.size,
                half=max(halves),
                smallest=min(counts),
                largest=max(counts),
                weak=weak,
            )
        )
    return tuple(found)


_INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<strong>\1</strong>"),
)


def print_writeup(folder: Path | str) -> bytes:
    """Return the write-up of the release in `folder` as a page to print, with the claims that it rests on."""
    opened = open_folder(folder, load=("writeup.md",))
    plan, asked = opened.certificate["plan"], opened.certificate["measurements"]
    kind, pure = plan["recipe"]["recipe"], not Fraction(plan["delta"])
    noise = sorted({each["kind"] for each in asked})
    questions = {type(each.counted).__name__ for each in opened.plan().requests}
    rests = {
        "the recipe": [kind],
        "bounds": sorted(questions),
        "noise and choices": [*noise, *(["choice"] if set(noise) - {"laplace", "gaussian"} else [])],
        "the ledger": ["pure_ledger" if pure else "ledger"],
        "the order of charge, reading and answer": ["door"],
    }
    claims = [(what, cite_claims(*names)) for what, names in rests.items()]
    blocks = opened.files["writeup.md"].decode().strip().split("\n\n")
    return render_page(
        "pack/writeup.html",
        title=blocks[0].removeprefix("# ").replace("`", ""),
        blocks=[_read_block(each) for each in blocks[1:]],
        claims=[each for each in claims if each[1]],
        digest=opened.certificate["plan_sha256"],
        internal=False,
    )


def _read_block(text: str) -> tuple[str, Any]:
    """Return the kind of a block of a write-up, and its lines or cells, with markup inside lines."""
    lines = text.split("\n")
    if lines[0].startswith("#"):
        return "heading", lines[0].lstrip("# ")
    if lines[0].startswith("|"):
        rows = [[_mark_up(cell.strip()) for cell in line.strip("| ").split(" | ")] for line in lines]
        return "table", [rows[0], *rows[2:]]
    if lines[0].startswith("- "):
        return "list", [_mark_up(line.removeprefix("- ")) for line in lines]
    return "text", _mark_up(" ".join(lines))


def _mark_up(text: str) -> Markup:
    marked = str(escape(text))
    for pattern, element in _INLINE:
        marked = pattern.sub(element, marked)
    return Markup(marked)


def describe_csvw(folder: Path | str) -> dict[str, Any]:
    """Return the released table's public facts as CSVW-EO metadata: domains, bounds, and who is protected."""
    certificate = open_folder(folder, load=()).certificate
    ((name, table),) = certificate["plan"]["table"].items()
    unit = certificate["unit"]
    columns = [
        _describe_column(stored, spec if isinstance(spec.get("from"), str) or stored == each else {})
        for each, spec in table["columns"].items()
        for stored in ([spec["from"]] if isinstance(spec.get("from"), str) else spec.get("from", [each]))
    ]
    columns = list({each["name"]: each for each in columns if each["name"] != unit["column"]}.values())
    if unit["column"] is not None:
        about = {"name": unit["column"], "datatype": "string", "required": True, "privacyId": True}
        columns.insert(0, {"@type": "Column", **about})
    return {
        "@context": ["http://www.w3.org/ns/csvw"],
        "@type": "Table",
        "url": f"{name}.csv",
        "privacyUnit": unit["column"],
        "maxContributions": unit["max_records"],
        "tableSchema": {"columns": columns},
    }


def _describe_column(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what CSVW says of a column: its type, its ends or its values."""
    described: dict[str, Any] = {"@type": "Column", "name": name, "required": not spec.get("nullable", False)}
    ends = spec.get("range") or spec.get("bounds") or spec.get("bins")
    listed = spec.get("values")
    if listed is not None and not any(isinstance(each, list) for each in listed):
        whole = all(type(each) is int for each in listed)
        truth = all(type(each) is bool for each in listed)
        described["datatype"] = "integer" if whole else "boolean" if truth else "string"
        described |= {"keyValues": listed, "exhaustiveKeys": spec.get("outside") != "other"}
    elif isinstance(ends, list) and spec.get("period") is None:
        dates = any(isinstance(each, str) and each.count("-") == 2 for each in ends)
        whole = all(type(each) is int for each in ends)
        described["datatype"] = "date" if dates else "integer" if whole else "double"
        low, high = ends[0], ends[-1]
        described |= {"minimum": low, "maximum": high}
        if described["datatype"] == "double":
            described |= {"minimum": float(Fraction(low)), "maximum": float(Fraction(high))}
    else:
        described["datatype"] = "dateTime" if spec.get("period") else "string"
    return described


def write_pack(
    folder: Path | str,
    out: Path | str,
    *,
    stated: Mapping[str, str] | None = None,
    attack: Path | str | None = None,
    ledger: Path | str | None = None,
    force: bool = False,
) -> tuple[tuple[str, ...], int]:
    """Write what a compliance officer needs of the release in `folder` to the folder `out`.

    Return the names of its files, and how many places are open for people to fill.

    `stated` is what only the curator knows, such as `recipient`. `attack` is what `sfumato attack link
    --json` printed of this release and the register that the recipient holds; without it the pack says that
    no link was tried. The release is derived again first, and its charge looked up in the `ledger` if that is
    given: one that does not verify has no pack.
    """
    opened = open_folder(folder, load=("table.csv", "writeup.md"))
    checked = verify(folder, ledger=ledger)
    facts = {
        **_describe(folder, stated or {}),
        "linked": None if attack is None else _read_attack(Path(attack)),
        "stated": dict(stated or {}),
        "checked": checked,
    }

    def fill(template: str) -> bytes:
        return f"{render_text(template, **facts)}\n".encode()

    files = {
        "registry.json": pack_json(facts["entry"]),
        "checklist.md": fill("report/checklist.txt"),
        "opinion-05-2014.md": fill("pack/opinion.txt"),
        "hipaa-expert-determination.md": fill("pack/hipaa.txt"),
        "iso-iec-27559.md": fill("pack/iso27559.txt"),
        "metadata.csvw.json": pack_json(describe_csvw(folder)),
        "results.json": pack_json(_describe_output(opened.certificate, facts["entry"])),
        "decision.html": bytes(
            render_page("pack/decision.html", **facts, title="For the decision", internal=False)
        ),
        "writeup.html": print_writeup(folder),
        **opened.files,
    }
    target = Path(out)
    if target.exists() and not force:
        raise ReleaseError(f"{target.name!r} exists already; choose another folder, or --force to replace it")
    if target.exists() and not (target.is_dir() and {each.name for each in target.iterdir()} <= set(files)):
        raise ReleaseError(
            f"{target.name!r} holds something that is not part of a pack; choose another folder"
        )
    write_folder(target, files)
    return tuple(sorted(files)), sum(content.count(OPEN.encode()) for content in files.values())


def _describe_output(certificate: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that output checkers keep, as ACRO 1.0 reads it; its own rules were not applied."""
    privacy, plan = entry["privacy"], certificate["plan"]
    guarantee = _tell_epsilon(privacy)
    method = plan["recipe"]["recipe"]
    return {
        "version": "1.0.2",  # of ACRO: it loads records of its own version only
        "tool": {"name": "sfumato", "version": __version__},
        "results": {
            "output_0": {
                "uid": "output_0",
                "status": "review",
                "type": "custom",
                "properties": {"method": method, "guarantee": guarantee, "unit": privacy["unit"]},
                "files": [{"name": "table.csv", "sdc": {}}],
                "outcome": {},
                "command": f"sfumato release ({method})",
                "summary": f"review; differentially private, epsilon {guarantee}; no cell rule was applied",
                "timestamp": entry["product"]["date"],
                "comments": ["writeup.md holds the proof; `sfumato verify` derives the table again"],
                "exception": "",
                "fair": {"analysis_name": method, "independent": list(entry["data"]["domain"])},
            }
        },
    }


def _read_attack(path: Path) -> dict[str, Any]:
    """Return what `sfumato attack link --json` printed: counts, never names or what was revealed of whom."""
    try:
        found = json.loads(read_regular(path, most=MOST_TEXT))
        kept = {
            key: found[key] for key in ("records", "people", "linked", "linked_share", "matches", "truth")
        }
        return {**kept, "on": list(map(str, found["on"]))}
    except (OSError, ValueError, KeyError, TypeError):
        raise ReleaseError(
            f"{path.name!r} is not what `sfumato attack link RELEASE --with REGISTER --on ... --json` prints"
        ) from None


def _describe(folder: Path | str, stated: Mapping[str, str]) -> dict[str, Any]:
    """Return what every template may say of the release in `folder`."""
    entry = describe_deployment(folder, **stated)
    certificate = open_folder(folder, load=()).certificate
    total = read_total(certificate["total"])
    rarity = None if total.is_pure else RARITIES[1]
    beliefs = [(prior, *posterior_bounds(total, prior, rarity=rarity)) for prior in (0.01, 0.1, 0.5)]
    return {
        "entry": entry,
        "epsilon": _tell_epsilon(entry["privacy"]),
        "drafted": [name for name, each in certificate["public"].items() if each.get("drafted_from_data")],
        "groups": find_group_errors(folder),
        "beliefs": beliefs,
        "rarity": rarity,
        "open": OPEN,
    }


def _tell_unit(unit: str | list[str]) -> str:
    if unit == "row":
        return "one record"
    if isinstance(unit, str):
        return f"all records that share a value of {unit}"
    who, when = unit
    return f"the records of one {when} that share a value of {who}, not those of all"


def _tell_epsilon(privacy: Mapping[str, Any]) -> str:
    readings = privacy["epsilon_at_delta"]
    told = privacy["epsilon"] or next(iter(readings.values()))
    size = Fraction(told)
    advice = ""
    if size > _VERY_LARGE:
        advice = ": above 10 the guarantee alone may protect nobody; say why it is enough"
    elif size > _LARGE:
        advice = ": above 1; say why it is enough"
    return f"{told}{'' if privacy['epsilon'] else f' at delta {next(iter(readings))}'}{advice}"


def _list_unprotected(certificate: Mapping[str, Any]) -> list[str]:
    """Return what the release states that is not protected: drafted domains, and counts declared as known."""
    drafted = [
        f"domain of {name}" for name, each in certificate["public"].items() if each.get("drafted_from_data")
    ]
    known = certificate["plan"]["recipe"].get("known") or {}
    return [*drafted, *(f"counts of {level}, declared as known" for level in known)]
