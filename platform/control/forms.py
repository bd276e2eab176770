"""The parts of forms that the admin, the console and the API share: amounts, and the version of an
edit."""

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from control.versions import changed_fields, digest, digests_of, version_of
from serving.contract.money import AmbiguousAmount, exact_dollars, parse_dollars

REASON_MAX = 200
"""Characters of a reason that an operator gives."""

VERSION = "version"
CONFIRMED = "confirmed_nanos"
"""The field with the amount that a person confirmed."""
SHOWN_MAX = 300
"""Characters of a value that an error repeats."""


def clean_dollars(text: str) -> int:
    """Return the nano-dollars of an amount that a person typed. Raises ValidationError."""
    try:
        return parse_dollars(text)
    except AmbiguousAmount as error:
        one, other = map(exact_dollars, error.readings)
        words = gettext("“%(text)s” could be %(one)s or %(other)s. Enter the one that you mean.")
        raise ValidationError(words % {"text": text, "one": one, "other": other}) from error
    except ValueError as error:
        words = gettext(
            "“%(text)s” is not an amount in dollars. Enter an amount such as 5 or 0.25."
        )
        raise ValidationError(words % {"text": text}) from error


def is_confirmed(form: forms.Form, nanos: int, consequence: str) -> bool:
    """Return whether the person confirmed this amount. Otherwise add the consequence and a checkbox
    to the form. Another amount needs another confirmation."""
    if not consequence or form.data.get(CONFIRMED) == str(nanos):
        return True
    widget = forms.CheckboxInput(attrs={"value": nanos}, check_test=lambda _value: False)
    form.fields[CONFIRMED] = forms.Field(
        label=_("Set this limit anyway"), required=False, widget=widget
    )
    form.add_error(None, consequence)
    return False


class VersionField(forms.CharField):
    """The hidden field with the version of the values that a form was made from."""

    widget = forms.HiddenInput

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return False: it is no value of what is edited."""
        return False


class VersionedForm(forms.Form):
    """A form that changes what exists already, whose present values are its initial values.

    A form that was made from other values is refused with both values of each field that differs.
    It keeps what the person typed, takes the present value of each field that they left alone, and
    has the present version, so that saving it again is a decision.
    """

    version = VersionField(required=False)
    unversioned: ClassVar[frozenset[str]] = frozenset()
    """Fields that choose what is edited."""
    is_stale = False

    def get_initial_for_field(self, field: forms.Field, field_name: str) -> Any:
        """Return a field's initial value; for the version, that of all the others."""
        if field_name == VERSION:
            return version_of(self._initial_values())
        return super().get_initial_for_field(field, field_name)

    def is_current(self, present: "VersionedForm") -> bool:
        """Return whether the form was made from the values of `present`, a form that was made now.

        If not, show both. A form without a version, such as a script's, is taken as it is.
        """
        sent = str(self.data.get(self.add_prefix(VERSION), ""))
        changed = changed_fields(sent, present._initial_values()) if sent else []
        told = {
            name: self._both_values(name, sent, present) for name in changed if name in self.fields
        }
        if not any(told.values()):
            return True
        self.is_stale = True
        data = cast(QueryDict, self.data).copy()
        self.data = data
        for name, words in told.items():
            if words:
                self._take_present(data, name, sent, present)
                self.add_error(name, words)
        data[self.add_prefix(VERSION)] = present[VERSION].value()
        for name, field in self.fields.items():
            if isinstance(field.widget, forms.PasswordInput) and self[name].data:
                self.add_error(name, gettext("Enter this again: it is never shown."))
        self.add_error(None, self._stale_message(data))
        return False

    def _stale_message(self, data: QueryDict) -> str:
        """Return why the form was refused; `data` are its fields as they are shown again."""
        return gettext(
            "This was changed after you opened the page, so nothing was saved. Look at the marked"
            " fields, then save again: what is filled in here replaces what is there now."
        )

    def _post_clean(self) -> None:
        self.cleaned_data.pop(VERSION, None)
        super()._post_clean()  # type: ignore[misc]

    def _initial_values(self) -> dict[str, str]:
        return {
            name: self._plain(name, self.get_initial_for_field(field, name))
            for name, field in self.fields.items()
            if name != VERSION and name not in self.unversioned and not field.disabled
        }

    def _plain(self, name: str, value: Any) -> str:
        """Return a value as one text, the same for an initial value and for what is sent."""
        shown = self._shown(name, value)
        if isinstance(shown, (list, tuple)):
            return "\n".join(sorted(map(str, shown)))
        return " ".join(str(shown).split())

    def _shown(self, name: str, value: Any) -> Any:
        """Return a value as the field's widget sends it."""
        field = self.fields[name]
        if isinstance(field.widget, forms.CheckboxInput):
            return "on" if value else ""
        if isinstance(field.widget, forms.MultiWidget):
            parts = value if isinstance(value, list) else field.widget.decompress(value) or ()
            pairs = zip(field.widget.widgets, parts, strict=False)
            return " ".join(widget.format_value(part) or "" for widget, part in pairs)
        shown = field.widget.format_value(field.prepare_value(value))
        return "" if shown is None else shown

    def _sent(self, name: str) -> Any:
        widget = self.fields[name].widget
        return widget.value_from_datadict(self.data, self.files, self.add_prefix(name))

    def _is_touched(self, name: str, version: str) -> bool:
        return digests_of(version).get(name) != digest(self._plain(name, self._sent(name)))

    def _both_values(self, name: str, version: str, present: "VersionedForm") -> str:
        """Return the present value and that of the form; nothing if they are the same."""
        field = present.fields[name]
        now, sent = present.get_initial_for_field(field, name), self._sent(name)
        if present._plain(name, now) == self._plain(name, sent):
            return ""
        values = {"now": present._words(name, now), "yours": self._words(name, sent)}
        if self._is_touched(name, version):
            return gettext("Now: %(now)s. You entered: %(yours)s.") % values
        return gettext("Now: %(now)s. It was: %(yours)s.") % values

    def _take_present(
        self, data: QueryDict, name: str, version: str, present: "VersionedForm"
    ) -> None:
        """Let a field that the person left alone have the present value."""
        if self._is_touched(name, version):
            return
        widget, prefixed = self.fields[name].widget, self.add_prefix(name)
        shown = present._shown(name, present.get_initial_for_field(present.fields[name], name))
        if isinstance(widget, forms.MultiWidget):
            for number, part in enumerate(str(shown).split(" ", 1)):
                data[f"{prefixed}_{number}"] = part
        elif shown == "":
            data.pop(prefixed, None)
        else:
            data.setlist(prefixed, shown if isinstance(shown, list) else [shown])

    def _words(self, name: str, value: Any) -> str:
        """Return a value in words: labels of choices, lines with commas."""
        field, shown = self.fields[name], self._shown(name, value)
        if isinstance(field.widget, forms.CheckboxInput):
            return gettext("on") if shown else gettext("off")
        values = shown if isinstance(shown, (list, tuple)) else str(shown).splitlines()
        labels = dict(_flat(getattr(field, "choices", ())))
        words = ", ".join(str(labels.get(str(each), each)) for each in values if each != "")
        if len(words) > SHOWN_MAX:
            words = words[:SHOWN_MAX] + "…"
        return words or gettext("nothing")


def _flat(choices: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    for value, label in choices:
        if isinstance(label, (list, tuple)):
            yield from _flat(label)
        else:
            yield str(value), label
