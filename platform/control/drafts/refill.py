"""Fills a form of a finished page with what a person had typed into it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from urllib.parse import urljoin, urlsplit

Attributes = dict[str, str | None]
Fields = Mapping[str, list[str]]
NEVER_FILLED = frozenset({"password", "file", "submit", "button", "image", "reset"})


def refill(page: str, page_url: str, path: str, fields: Fields) -> str:
    """Return the page, with the form that is sent to `path` filled with these fields.

    If several forms are sent there, the one that has the most of the fields is filled. A page
    without one is returned as it is.
    """
    parser = _FormFinder(page, page_url, path, fields)
    parser.feed(page)
    parser.close()
    best = max(parser.forms, key=lambda form: form.known_count, default=None)
    for start, end, text in sorted(best.edits if best else (), reverse=True):
        page = page[:start] + text + page[end:]
    return page


@dataclass
class _FoundForm:
    """A form, the replacements in the page that fill it, and how many of the fields it has."""

    values: dict[str, list[str]]
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    known_count: int = 0
    select: str = ""
    textarea: tuple[str, int] | None = None


class _FormFinder(HTMLParser):
    """Finds the forms that are sent to a path; the rest of the page stays byte by byte."""

    def __init__(self, page: str, page_url: str, path: str, fields: Fields) -> None:
        super().__init__(convert_charrefs=True)
        self.page_url, self.path, self.fields = page_url, path, fields
        self.line_starts = [0, *accumulate(len(each) + 1 for each in page.split("\n"))]
        self.forms: list[_FoundForm] = []
        self.form: _FoundForm | None = None
        self.closed_details: list[tuple[int, int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "details":
            self.closed_details.append(self._replaced(tag, attributes | {"open": None}))
        elif tag == "form":
            self._begin_form(attributes)
        elif self.form is not None:
            self._fill(self.form, tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if tag == "details" and self.closed_details:
            self.closed_details.pop()
        elif tag == "form":
            self.form = None
        elif tag == "textarea" and self.form is not None and self.form.textarea:
            name, start = self.form.textarea
            text = "\n" + escape(self._next_value(self.form, name))
            self.form.edits.append((start, self._position(), text))
            self.form.textarea = None
        elif tag == "select" and self.form is not None:
            self.form.select = ""

    def _begin_form(self, attributes: Attributes) -> None:
        target = urljoin(self.page_url, attributes.get("action") or self.page_url)
        is_post = (attributes.get("method") or "").lower() == "post"
        self.form = None
        if is_post and urlsplit(target).path == self.path:
            values = {name: list(each) for name, each in self.fields.items()}
            self.form = _FoundForm(values, list(self.closed_details))
            self.forms.append(self.form)

    def _fill(self, form: _FoundForm, tag: str, attributes: Attributes) -> None:
        name = attributes.get("name") or form.select
        form.known_count += tag != "option" and name in self.fields
        kind = (attributes.get("type") or "text").lower()
        if tag == "select":
            form.select = name
        elif tag == "option" and form.select in self.fields:
            self._mark(form, tag, attributes, "selected", self.fields[form.select])
        elif tag == "textarea" and name in self.fields:
            end = self._position() + len(self.get_starttag_text() or "")
            form.textarea = (name, end)
        elif tag != "input" or kind in NEVER_FILLED:
            return
        elif kind in {"checkbox", "radio"}:
            self._mark(form, tag, attributes, "checked", self.fields.get(name, []))
        elif name in self.fields:
            value = self._next_value(form, name)
            form.edits.append(self._replaced(tag, attributes | {"value": value}))

    def _mark(
        self, form: _FoundForm, tag: str, attributes: Attributes, mark: str, chosen: list[str]
    ) -> None:
        default = "on" if tag == "input" else ""
        is_chosen = attributes.get("value", default) in chosen
        rest = {name: value for name, value in attributes.items() if name != mark}
        form.edits.append(self._replaced(tag, rest | ({mark: None} if is_chosen else {})))

    def _next_value(self, form: _FoundForm, name: str) -> str:
        values = form.values[name]
        return values.pop(0) if values else ""

    def _replaced(self, tag: str, attributes: Attributes) -> tuple[int, int, str]:
        words = "".join(
            f" {name}" if value is None else f' {name}="{escape(value)}"'
            for name, value in attributes.items()
        )
        start = self._position()
        return start, start + len(self.get_starttag_text() or ""), f"<{tag}{words}>"

    def _position(self) -> int:
        line, column = self.getpos()
        return self.line_starts[line - 1] + column
