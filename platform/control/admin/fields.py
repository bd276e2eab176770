"""Form fields and column formats of the admin: one list item per line, money in dollars, indented
JSON."""

import json
from collections.abc import Callable, Mapping
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import BaseModelAdmin
from django.core.exceptions import ValidationError
from django.db.models import Field as Column
from django.forms import Field
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from control.forms import clean_dollars
from serving.contract.money import exact_dollars

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

NOTHING = "-"
"""The text that the admin shows for an empty column."""


def idempotent_action(shown: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Cache a column's value on the row: the admin's templates read it several times."""
    name = f"_{shown.__name__}_shown"

    @wraps(shown)
    def show(admin_page: Any, row: Any) -> Any:
        if not hasattr(row, name):
            setattr(row, name, shown(admin_page, row))
        return getattr(row, name)

    return show


class LinesField(Field):
    """A list of strings, one per line; blank lines are ignored."""

    widget = UnfoldAdminTextareaWidget

    def __init__(self, base_field: Field, *, max_length: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.base_field = base_field
        self.max_length = max_length
        self.widget.attrs["rows"] = 3
        self.help_text = self.help_text or _("One per line.")

    def prepare_value(self, value: Any) -> Any:
        """Return what the text area shows."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[Any]:
        """Return the lines that are not blank, each cleaned. Raises ValidationError."""
        lines = (line.strip() for line in (value or "").splitlines())
        return [self.base_field.clean(line) for line in lines if line]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return list(initial or []) != [line.strip() for line in (data or "").splitlines() if line]


class DollarsField(Field):
    """Money entered in dollars, such as 0.15, kept as nano-dollars; None if empty."""

    widget = UnfoldAdminTextInputWidget

    def prepare_value(self, value: Any) -> Any:
        """Return what the text box shows."""
        return exact_dollars(value).replace(",", "") if isinstance(value, int) else value

    def to_python(self, value: Any) -> int | None:
        """Return nano-dollars. Raises ValidationError."""
        if value in self.empty_values:
            return None
        return clean_dollars(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the amounts differ; an invalid amount does."""
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


class DollarsMixin(BaseModelAdmin):
    """An admin whose forms show each `..._nanos` column in dollars."""

    dollars_help: Mapping[str, "StrOrPromise"] = {}
    """Help texts of the amounts, by column."""
    column_labels: Mapping[str, "StrOrPromise"] = {}
    """Labels on the row's page, by column, in place of the columns' names."""

    def formfield_for_dbfield(self, db_field: Column, request: Any, **options: Any) -> Any:
        """Return the form field of a column."""
        if not db_field.name.endswith("_nanos"):
            return super().formfield_for_dbfield(db_field, request, **options)
        name = db_field.name
        label = self.column_labels.get(name)
        label = label or name.removesuffix("_nanos").replace("_", " ").capitalize()
        help_text = self.dollars_help.get(name, _("In dollars."))
        return DollarsField(label=label, required=not db_field.blank, help_text=help_text)


def displayed(
    path: str,
    description: "StrOrPromise",
    *,
    ordering: str | None = None,
    boolean: bool | None = None,
) -> Callable[[Any, Any], Any]:
    """Return an admin column that shows an attribute, by a path such as `caller.key_id`.

    It is sortable only with an `ordering`; a `boolean` is shown as an icon.
    """
    read = attrgetter(path)

    @admin.display(description=description, ordering=ordering, boolean=boolean)
    def shown(_: Any, row: Any) -> Any:
        return read(row)

    return shown


def dollars(
    column: str, description: "StrOrPromise", *, is_stored: bool = True
) -> Callable[[Any, Any], str]:
    """Return an admin column that shows nano-dollars as dollars, without rounding.

    It is sortable only if `is_stored`.
    """

    @admin.display(description=description, ordering=column if is_stored else None)
    def shown(_: Any, row: Any) -> str:
        nanos = getattr(row, column)
        return NOTHING if nanos is None else exact_dollars(nanos)

    return shown


def milliseconds(column: str, description: "StrOrPromise") -> Callable[[Any, Any], str]:
    """Return an admin column that shows seconds as milliseconds."""

    @admin.display(description=description, ordering=column)
    def shown(_: Any, row: Any) -> str:
        seconds = getattr(row, column)
        return NOTHING if seconds is None else f"{seconds * 1000:,.1f} ms"

    return shown


def indented(document: object) -> str:
    """Return indented JSON as an HTML block that wraps."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return format_html('<pre class="wrapped">{}</pre>', text)
