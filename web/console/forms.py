"""Errors of services, shown in the form that caused them."""

from collections.abc import Callable

from django.forms import Form

from control.errors import ServiceError


def apply_or_form_error(form: Form, act: Callable[[], object]) -> bool:
    """Call `act` and return whether it succeeded. A service error is added to the form, to the
    field that it names if any, so that no input is lost."""
    try:
        act()
    except ServiceError as error:
        form.add_error(error.param if error.param in form.fields else None, error.message)
        return False
    return True
