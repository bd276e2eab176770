"""Forms of the console: service errors in the form that caused them, and edits that notice that
somebody else saved first."""

from collections.abc import Callable

from django.db import transaction
from django.forms import Form

from control.errors import ServiceError
from control.forms import VersionedForm
from control.versions import lock_edits


def apply_or_form_error(form: Form, act: Callable[[], object]) -> bool:
    """Call `act` and return whether it succeeded. A service error is added to the form, to the
    field that it names if any, so that no input is lost."""
    try:
        act()
    except ServiceError as error:
        form.add_error(error.param if error.param in form.fields else None, error.message)
        return False
    return True


def save_edit(
    form: VersionedForm,
    owner_id: str,
    present: Callable[[], VersionedForm],
    act: Callable[[], object],
    *,
    takes_seconds: bool = False,
) -> bool:
    """Call `act` if the form is valid and was made from the present values; return whether it
    succeeded. `present` reads them, and returns a form of them.

    Simultaneous saves of what belongs to `owner_id` wait for each other, and each is checked
    against what the one before it saved. An act that takes seconds, because it calls other servers,
    holds no transaction open: it is checked before it begins.
    """
    if not form.is_valid():
        return False
    if takes_seconds:
        return form.is_current(present()) and apply_or_form_error(form, act)

    def check_and_act() -> None:
        with transaction.atomic():
            lock_edits(owner_id)
            if form.is_current(present()):
                act()

    return apply_or_form_error(form, check_and_act) and not form.is_stale


def status_of(*forms: Form | None) -> int:
    """Return the status of a page with forms as they were submitted: 409 for a stale one, 400 for
    an invalid one."""
    submitted = [form for form in forms if form is not None]
    if any(isinstance(form, VersionedForm) and form.is_stale for form in submitted):
        return 409
    return 400 if any(form.errors for form in submitted) else 200
