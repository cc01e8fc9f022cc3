"""Templates: everything is escaped, nothing may be missing, and no template asks anybody for anything."""

import re
import sys
from importlib import resources
from subprocess import run

import pytest
from jinja2 import UndefinedError

from sfumato.report.pages.render import _environment, render_page

BASE = {"title": "t", "internal": False, "sections": []}


def test_values_are_escaped_and_hidden_signs_are_shown():
    page = render_page("base.html", **BASE | {"title": "<b>\u202e & 95 %"}).decode()
    assert "<title>&lt;b&gt;\ufffd &amp; 95\xa0%</title>" in page


def test_what_is_missing_is_an_error_and_not_a_gap():
    with pytest.raises(UndefinedError):
        render_page("base.html", title="t", sections=[])


@pytest.mark.parametrize("name", sorted(_environment().list_templates()))
def test_a_template_escapes_and_asks_nobody(name):
    text = (resources.files("sfumato.report.pages") / "templates" / name).read_text()
    assert not re.search(r"\|\s*safe\b|autoescape", text)
    # A release's own report, which may run no script and reach nothing.
    text = re.sub(r'<iframe class="report" src="/api/reports/[^"]*" [^>]*sandbox=""', "", text)
    served = name.startswith("serve/")  # these may ask their own server; the others are whole by themselves
    for sign in (
        "http:",
        "https:",
        "@import",
        "url(",
        "<iframe",
        *(() if served else ("src=", "<link")),
        *(() if served or name == "explore/page.html" else ("<script",)),
    ):
        assert sign not in text.replace("url(#", "")  # a pattern of the page itself
    assert not re.search(r'(?:src|href|action)="(?!/|#|{{)', text)
    _environment().get_template(name)


def test_codes_are_listed_as_a_sentence_lists_them():
    show = _environment().filters["codes"]
    assert show([]) == ""
    assert show(["a<"]) == "<code>a&lt;</code>"
    assert show("ab") == "<code>a</code> and <code>b</code>"
    assert show(map(str, range(20)), 2).endswith("<code>1</code>, 18 more")


def test_templates_are_loaded_only_where_a_page_is_made():
    code = "import sys, sfumato, sfumato.report, sfumato.report.explain; sys.exit('jinja2' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
