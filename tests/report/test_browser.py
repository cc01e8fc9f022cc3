"""A real browser reads the report: no request, no complaint, nothing wider than the window."""

import re

import numpy as np
import pytest

from sfumato.report.page import build_report

WIDTHS = (360, 1280)


@pytest.fixture
def pages(folders, tmp_path):
    """A public report with long hostile names, and an internal one, as files."""
    labels = [folders.HOSTILE, "x" * 70, *(f"a place with a long name, number {n}" for n in range(45))]
    folder = folders.write_counts(tmp_path / "out", labels=labels, months=12)
    maps = {("place", "month"): np.full((len(labels), 12), 40)}
    public, internal = tmp_path / "public.html", tmp_path / "internal.html"
    public.write_bytes(build_report(folder))
    internal.write_bytes(build_report(folder, comparison=folders.compare(), maps=maps))
    return public, internal


def test_no_request_no_complaint_no_overflow(browser, pages):
    for page in pages:
        for width in WIDTHS:
            for dark in (False, True):
                browser.open(page, width=width, dark=dark)
                asked, faults = browser.heard()
                assert asked == [page.as_uri()]
                assert faults == []
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
                assert browser.evaluate("document.querySelectorAll('section').length") >= 10


def test_no_element_but_scrolling_boxes_is_wider_than_the_window(browser, pages):
    wide = """[...document.querySelectorAll('main *')].filter(each => !each.closest('.scroll, pre, svg')
        && each.getBoundingClientRect().right > innerWidth + 1).map(each => each.tagName + each.className)"""
    for page in pages:
        browser.open(page, width=360)
        assert browser.evaluate(wide) == []


def test_labels_of_charts_lie_within_their_pictures(browser, pages):
    outside = """[...document.querySelectorAll('svg text')].filter(each => {
        const inner = each.getBoundingClientRect(), outer = each.ownerSVGElement.getBoundingClientRect();
        return inner.left < outer.left - 14 || inner.right > outer.right + 14
            || inner.top < outer.top - 6 || inner.bottom > outer.bottom + 6;
    }).map(each => each.textContent)"""
    for page in pages:
        for width in WIDTHS:
            browser.open(page, width=width)
            assert browser.evaluate(outside) == []


def test_the_notice_is_seen_wherever_one_scrolls(browser, pages):
    browser.open(pages[1], width=1280)
    browser.evaluate("scrollTo(0, 4000)")
    assert browser.evaluate("document.querySelector('.internal-bar').getBoundingClientRect().top") == 0


def test_dark_pages_are_dark(browser, pages):
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.open(pages[0], width=800, dark=True)
    dark = browser.evaluate(ground)
    browser.open(pages[0], width=800)
    light = browser.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))


def test_it_prints(browser, pages):
    browser.open(pages[1], width=1000)
    assert browser.pdf().startswith(b"%PDF")
