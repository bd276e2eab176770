"""Errors of services, shown in the form that caused them, and amounts in dollars."""

from collections.abc import Callable

from django.forms import Form, ValidationError
from django.utils.translation import gettext

from control.errors import ServiceError
from serving.contract.money import parse_dollars


def apply_or_form_error(form: Form, act: Callable[[], object]) -> bool:
    """Call `act` and return whether it succeeded. A service error is added to the form, to the
    field that it names if any, so that no input is lost."""
    try:
        act()
    except ServiceError as error:
        form.add_error(error.param if error.param in form.fields else None, error.message)
        return False
    return True


def clean_dollars(text: str) -> int:
    """Return the nano-dollars of an amount that a person typed. Raises ValidationError."""
    try:
        return parse_dollars(text)
    except ValueError as error:
        words = gettext(
            "“%(text)s” is not an amount in dollars. Enter an amount such as 5 or 0.25."
        )
        raise ValidationError(words % {"text": text}) from error
