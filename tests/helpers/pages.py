"""Pages of HTML, read as a browser does: their elements, texts and headings."""

import re
from html.parser import HTMLParser

VOID = {"br", "col", "hr", "img", "input", "link", "meta", "source", "path", "line", "circle", "rect", "use"}


class Reader(HTMLParser):
    """The elements of a page, checked to be closed in their order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text, self.headings = [], [], [], []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID or (tag == "rect" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in VOID and (not self.open or self.open[-1] != tag):
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if "h2" in self.open:
            self.headings.append(data)

    @property
    def tags(self):
        return {tag for tag, _ in self.elements}

    @property
    def attributes(self):
        return [pair for _, attrs in self.elements for pair in attrs.items()]

    @property
    def words(self):
        return re.sub(r"\s+", " ", " ".join(self.text))
