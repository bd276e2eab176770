"""Filling a mail's templates with names that strangers may have chosen."""

import unicodedata
from dataclasses import dataclass
from typing import Any

from django.template import Context
from django.template.loader import get_template

from control.mail.links import absolute

TEXT_MAX = 2000
"""Characters of one value; names are far shorter, links fit."""
SUBJECT_MAX = 150
BIDI_CONTROLS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They could make a name read as what it is not; right-to-left letters need none of them."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A mail as it is read."""

    subject: str
    text: str
    html: str


def word(template: str, context: dict[str, Any]) -> Wording:
    """Return the mail `mail/<template>` filled in. HTML is escaped, text is taken as it is.

    Raises TemplateDoesNotExist where one of its three files is missing.
    """
    values = {**cleaned(context), "console_url": absolute("/")}
    subject = " ".join(_render(f"mail/{template}.subject.txt", values, autoescape=False).split())
    return Wording(
        subject=_cut(subject, SUBJECT_MAX),
        text=_render(f"mail/{template}.txt", values, autoescape=False).strip() + "\n",
        html=_render(f"mail/{template}.html", values, autoescape=True).strip() + "\n",
    )


def cleaned(value: Any) -> Any:
    """Return JSON with every text in one line, without control characters, and not too long."""
    if isinstance(value, dict):
        return {name: cleaned(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return _clean(value) if isinstance(value, str) else value


def _clean(text: str) -> str:
    kept = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c
        for c in text[: TEXT_MAX + 1]
        if c not in BIDI_CONTROLS
    )
    return _cut(kept, TEXT_MAX)


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def _render(name: str, values: dict[str, Any], *, autoescape: bool) -> str:
    template: Any = get_template(name)
    return str(template.template.render(Context(values, autoescape=autoescape)))
