"""A certificate told in others' forms: an entry for a registry of deployments, and a reviewer's checklist.

Both are made of the certificate alone. What only the curator of the data knows is left open by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from sfumato.release.folder import open_folder
from sfumato.report.pages.render import render_text

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
            "contribution": f"at most {unit['max_records']} records of one individual, {unit['bounding']}",
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
    """The points that NIST SP 800-226 asks a reviewer to look at, answered from the certificate; Markdown."""
    entry = describe_deployment(folder, **stated)
    public = entry["data"]["public_inputs"].items()
    drafted = [name for name, each in public if each.get("drafted_from_data")]
    epsilon = _tell_epsilon(entry["privacy"])
    return (
        render_text("report/checklist.txt", entry=entry, epsilon=epsilon, drafted=drafted, open=OPEN) + "\n"
    )


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
