"""Fills a form of a finished page with what a person had typed into it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from urllib.parse import urljoin, urlsplit

Attributes = dict[str, str | None]
Fields = Mapping[str, list[str]]
BUTTONS = frozenset({"submit", "button", "image", "reset"})
NEVER_FILLED = frozenset({"password", "file"})
FILLED_HIDDEN = frozenset({"version", "provider_version", "token", "form_id", "idempotency_key"})
"""Hidden fields that belong to the form that was sent. Any other says what the form acts on."""
COUNTS = ("-TOTAL_FORMS", "-INITIAL_FORMS", "-MIN_NUM_FORMS", "-MAX_NUM_FORMS")
"""Ends of hidden fields that count the rows of a page, however many there were before."""


@dataclass(frozen=True, slots=True)
class RefilledPage:
    """A page after its form was filled."""

    text: str
    is_filled: bool = False
    """Whether the form has fields that a person types or chooses."""
    unfilled: Fields = field(default_factory=dict)
    """Typed values that have no place on the page, such as a row that was added to it."""
    secrets: tuple[str, ...] = ()
    """Labels of the fields that were not kept."""


def refill(
    page: str, page_url: str, path: str, fields: Fields, omitted: Collection[str] = ()
) -> RefilledPage:
    """Return the page, with the form that is sent to `path` filled with these fields. `omitted` are
    the names of fields that were not kept.

    If several forms are sent there, the one that has the most of the fields is filled. A form whose
    hidden fields say that it acts on something else is not filled.
    """
    parser = _FormFinder(page, page_url, path, fields)
    parser.feed(page)
    parser.close()
    best = max(
        parser.forms, key=lambda form: (form.known_count, not form.is_other), default=_FoundForm({})
    )
    same = bool(parser.forms) and not best.is_other
    left: Fields = best.values if same else {name: fields[name] for name in best.typed}
    unfilled = {
        name: values
        for name, values in (left if parser.forms else fields).items()
        if any(values) and name not in FILLED_HIDDEN and not name.endswith(COUNTS)
        and not name.startswith("_")
    }  # fmt: skip
    secrets = [parser.label_of(name, best.ids[name]) for name in best.ids if name in omitted]
    for start, end, text in sorted(best.edits if same else (), reverse=True):
        page = page[:start] + text + page[end:]
    return RefilledPage(page, same and bool(best.typed), unfilled, tuple(secrets if same else ()))


@dataclass
class _FoundForm:
    """A form, the replacements in the page that fill it, and how many of the fields it has."""

    values: dict[str, list[str]]
    """The values that are not filled in yet."""
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    known_count: int = 0
    is_other: bool = False
    typed: set[str] = field(default_factory=set)
    ids: dict[str, str] = field(default_factory=dict)
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
        self.labels: dict[str, str] = {}
        self.label_for = ""

    def label_of(self, name: str, element_id: str) -> str:
        """Return the label of a field; its name in words without one."""
        words = name.replace("_", " ").capitalize()
        return " ".join(self.labels.get(element_id, "").split()).rstrip(":") or words

    def handle_data(self, data: str) -> None:
        if self.label_for:
            self.labels[self.label_for] = self.labels.get(self.label_for, "") + data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "label":
            self.label_for = attributes.get("for") or ""
        elif tag == "details":
            self.closed_details.append(self._replaced(tag, attributes | {"open": None}))
        elif tag == "form":
            self._begin_form(attributes)
        elif self.form is not None:
            self._fill(self.form, tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            self.label_for = ""
        elif tag == "details" and self.closed_details:
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
        if tag == "button" or kind in BUTTONS:
            form.values.pop(name, None)
        elif tag == "input" and kind == "hidden":
            self._fill_hidden(form, name, attributes)
        elif tag in {"input", "select", "textarea"}:
            form.ids[name] = attributes.get("id") or ""
            form.typed |= {name} & self.fields.keys()
            self._fill_visible(form, tag, kind, attributes)
        elif tag == "option" and form.select in self.fields:
            self._mark(form, tag, attributes, "selected", form.select)

    def _fill_hidden(self, form: _FoundForm, name: str, attributes: Attributes) -> None:
        if name not in self.fields:
            return
        present, value = attributes.get("value") or "", self._next_value(form, name)
        if name in FILLED_HIDDEN:
            form.edits.append(self._replaced("input", attributes | {"value": value}))
        elif present and not name.endswith(COUNTS):
            form.is_other |= present != value

    def _fill_visible(self, form: _FoundForm, tag: str, kind: str, attributes: Attributes) -> None:
        name = attributes.get("name") or ""
        if tag == "select":
            form.select = name
        elif tag == "textarea":
            if name in self.fields:
                end = self._position() + len(self.get_starttag_text() or "")
                form.textarea = (name, end)
        elif kind in {"checkbox", "radio"}:
            self._mark(form, tag, attributes, "checked", name)
        elif kind in NEVER_FILLED:
            form.values.pop(name, None)
        elif name in self.fields:
            value = self._next_value(form, name)
            form.edits.append(self._replaced(tag, attributes | {"value": value}))

    def _mark(
        self, form: _FoundForm, tag: str, attributes: Attributes, mark: str, name: str
    ) -> None:
        value = attributes.get("value", "on" if tag == "input" else "") or ""
        is_chosen = value in self.fields.get(name, ())
        if value in form.values.get(name, ()):
            form.values[name].remove(value)
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
