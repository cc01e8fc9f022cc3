"""Writes docs/exercises.md: the exercises without their answers, to be handed out."""

import re
from pathlib import Path

PAGE = Path(__file__).with_name("exercises.md")
HEAD = (
    "# Exercises\n\nTo the [lecture](lecture.md). [With the answers](exercises-answers.md), all computed.\n\n"
)


def build() -> str:
    """The page without what stands between `<!-- answer -->` and `<!-- end -->`."""
    text = PAGE.with_name("exercises-answers.md").read_text(encoding="utf-8")
    asked = re.sub(
        r"<!-- answer -->\n.*?<!-- end -->\n\n?", "", text[text.index("\n## ") + 1 :], flags=re.DOTALL
    )
    return HEAD + asked.rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(build(), encoding="utf-8")
