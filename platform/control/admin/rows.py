"""What the operator's admin pages share: every write goes through a service, with its audit row
and its published change, and a refusal becomes a message."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from django.contrib import messages
from django.contrib.postgres.fields import ArrayField
from django.db.models import Model
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextareaWidget

from control.actor import Actor, Person, person
from control.admin.fields import InDollars, LinesField
from control.errors import NotPermitted, ServiceError
from control.request_context import bind_log_ids


def operator(request: HttpRequest) -> Actor:
    """Return who uses the admin. Raises NotPermitted for nobody."""
    if not request.user.is_authenticated:
        raise NotPermitted("Log in first.")
    found = person(cast(Person, request.user))
    bind_log_ids(user_id=found.user_id)
    return found


class OperatorAdmin(InDollars, ModelAdmin):
    """Pages whose writes are services: subclasses say which in `add_row` and `change_row`."""

    formfield_overrides = {
        ArrayField: {"form_class": LinesField, "widget": UnfoldAdminTextareaWidget}
    }
    actions_on_bottom = False

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Model:
        """Make what the form describes and return it."""
        raise NotImplementedError

    def change_row(self, actor: Actor, row: Any, changes: dict[str, Any]) -> Model:
        """Make the changes of the form and return the row."""
        raise NotImplementedError

    def save_model(self, request: HttpRequest, obj: Model, form: ModelForm, change: bool) -> None:
        """Hand the form to a service; `obj` becomes the row that it returns."""
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        actor = operator(request)
        row = self.change_row(actor, obj, values) if change else self.add_row(actor, values)
        obj.__dict__.update(row.__dict__)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show a refusal as a message on the same page; nothing was changed then."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except ServiceError as error:
            messages.error(request, error.message)
            return redirect(request.get_full_path())

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is deleted: rows end by their own verbs."""
        return False

    def carry_out(
        self, request: HttpRequest, rows: Iterable[Any], done: str, verb: Callable[..., object]
    ) -> None:
        """Do something to each selected row, and say how it went."""
        for row in rows:
            try:
                verb(operator(request), row)
            except ServiceError as error:
                messages.error(request, f"{row}: {error.message}")
            else:
                messages.success(request, f"{row} {done}.")


class ReadOnlyAdmin(OperatorAdmin):
    """Pages to look at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nothing is added here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nothing is changed here."""
        return False
