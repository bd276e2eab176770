"""What a service refuses, said in the form that asked for it."""

from collections.abc import Callable

from django.forms import Form

from control.errors import ServiceError


def apply_or_form_error(form: Form, act: Callable[[], object]) -> bool:
    """Do it; a refusal goes back into the form, to its field where it names one, so that nothing
    typed is lost."""
    try:
        act()
    except ServiceError as refusal:
        form.add_error(refusal.param if refusal.param in form.fields else None, refusal.message)
        return False
    return True
