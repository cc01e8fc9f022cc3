"""How to check the release and make it again: commands, digests, versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sfumato.report.html import Html, clip_text, join, paragraph, tag
from sfumato.report.numbers import NONE
from sfumato.report.sections.parts import code, scroll_table

if TYPE_CHECKING:
    from sfumato.report.story import Story

_LONGEST = 3000


def tell_reproduction(story: Story) -> Html:
    """Commands that verify the release, what they check, and what it was made with."""
    facts = story.facts
    certificate = facts.certificate
    name = clip_text(facts.name, 60)
    commands = (
        f"sfumato verify {name}\n"
        f"sfumato verify {name} --project sfumato.toml   # the charge in the ledger, too\n"
        f"sfumato report {name}                          # this report, byte for byte"
    )
    recipe = json.dumps(facts.recipe, indent=2, ensure_ascii=False)
    recipe = (
        recipe if len(recipe) <= _LONGEST else recipe[:_LONGEST] + "\n… (certificate.json holds it whole)"
    )
    digests = [
        (code(file), tag("span", str(digest), class_="mono digest"))
        for file, digest in sorted((certificate.get("files") or {}).items())
    ]
    versions = ", ".join(
        f"{clip_text(key, 20)} {clip_text(value, 20)}"
        for key, value in (certificate.get("versions") or {}).items()
    )
    plan = tag("span", str(certificate.get("plan_sha256", NONE)), class_="mono digest")
    return join(
        paragraph(
            "The table and the write-up follow from the certificate and the measurements. ",
            code("sfumato verify"),
            " derives them again and compares, byte for byte; whoever has the ledger can also check the "
            "charge.",
        ),
        tag("pre", tag("code", commands), tabindex="0"),
        paragraph(
            "The files that this report was made from. Each has the digest (SHA-256) that the certificate "
            "states:"
        ),
        scroll_table(("file", "digest"), digests, label="digests"),
        paragraph("Digest of the plan: ", plan, class_="note"),
        tag("details", tag("summary", "The recipe"), tag("pre", tag("code", recipe), tabindex="0")),
        paragraph(
            "Noise is drawn anew for every release, from the operating system; nobody can draw the same "
            "noise "
            f"again. Made with {versions}.",
            class_="note",
        ),
    )
