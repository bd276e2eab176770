"""Base classes of the operators' admin pages: every write goes through a service, with its audit
event and published records, and a service error is shown in the form."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.contrib.admin.options import BaseModelAdmin
from django.contrib.admin.utils import quote
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.forms import BaseInlineFormSet, ModelForm
from django.forms.formsets import DELETION_FIELD_NAME
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext
from django.views.generic.base import ContextMixin, TemplateResponseMixin, View
from unfold.admin import ModelAdmin, TabularInline
from unfold.views import UnfoldModelAdminViewMixin
from unfold.widgets import UnfoldAdminTextareaWidget

from control.admin.fields import DollarsMixin, LinesField
from control.errors import NotPermitted, ServiceError
from control.forms import VERSION, VersionedForm
from control.permissions import Actor, UserLike
from control.request_context import bind_log_ids
from control.versions import edits_owner, lock_edits

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


def operator(request: HttpRequest) -> Actor:
    """Return the signed-in operator. Raises NotPermitted if nobody is signed in."""
    if not request.user.is_authenticated:
        raise NotPermitted("Sign in first.")
    actor = Actor.for_user(cast(UserLike, request.user))
    bind_log_ids(user_id=actor.user_id)
    return actor


class VersionedModelForm(VersionedForm, ModelForm):
    """The form of a row, which is refused if it was made from another version of the row."""

    def clean(self) -> dict[str, Any] | None:
        """Compare an existing row's form with the row, once no other edit of it is under way."""
        cleaned = super().clean()
        row = self.instance
        is_removed = self.cleaned_data.get(DELETION_FIELD_NAME, False)
        is_whole = is_removed or not self.errors
        if not row._state.adding and is_whole and self.has_changed():
            lock_edits(edits_owner(row))
            self.is_current(type(self)(instance=type(row)._default_manager.get(pk=row.pk)))
        return cleaned


class VersionedAdmin(BaseModelAdmin):
    """Pages and tables of rows whose forms have the version of the row."""

    form: type[ModelForm] = VersionedModelForm

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields without the version, which `get_fieldsets` adds."""
        return [name for name in super().get_fields(request, obj) if name != VERSION]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields, with the hidden version of rows that exist and may be changed."""
        fieldsets = super().get_fieldsets(request, obj)
        is_versioned = issubclass(self.form, VersionedForm)
        if obj is None or not is_versioned or not self.has_change_permission(request, obj):
            return fieldsets
        (name, options), *rest = fieldsets
        return [(name, {**options, "fields": (*options["fields"], VERSION)}), *rest]


class VersionedFormSet(BaseInlineFormSet):
    """The rows of a table, none of which is removed if its form is stale."""

    def clean(self) -> None:
        """Refuse to remove a row that was changed since: Django leaves out such rows' errors."""
        super().clean()
        stale = filter(_is_refused_as_stale, self.forms)
        if any(form.cleaned_data.get(DELETION_FIELD_NAME) for form in stale):
            words = gettext(
                "A row that you removed was changed after you opened the page, so nothing was"
                " saved. Look at the marked fields, then save again."
            )
            raise ValidationError(words)


class VersionedInline(VersionedAdmin, TabularInline):
    """A table of rows that are changed on the page of another row."""

    formset = VersionedFormSet


class ReadOnlyInline(TabularInline):
    """Read-only rows of a related table. Saving the page leaves them alone."""

    extra = 0
    can_delete = False
    hide_title = True

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Return False: the inline is read-only."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Return False: the inline is read-only."""
        return False


class OperatorAdmin(VersionedAdmin, DollarsMixin, ModelAdmin):
    """Pages that write through services: subclasses call these in `add_row` and `change_row`."""

    formfield_overrides = {
        ArrayField: {"form_class": LinesField, "widget": UnfoldAdminTextareaWidget}
    }
    actions_on_bottom = False

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Model:
        """Create the row that the form describes and return it."""
        raise NotImplementedError

    def change_row(self, actor: Actor, row: Any, changes: dict[str, Any]) -> Model:
        """Apply the form's changes and return the row."""
        raise NotImplementedError

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        """Return the form with the labels of `column_labels`, of read-only columns too."""
        form = super().get_form(request, obj, change, **{"labels": self.column_labels, **options})
        error = getattr(request, "service_error", None)
        return form if error is None else _with_error(form, error)

    def save_model(self, request: HttpRequest, obj: Model, form: ModelForm, change: bool) -> None:
        """Pass the form to a service; `obj` becomes the row that it returns."""
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        actor = operator(request)
        row = self.change_row(actor, obj, values) if change else self.add_row(actor, values)
        obj.__dict__.update(row.__dict__)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show a service error, and a stale form with both values, in the form as it was sent;
        nothing was changed."""
        try:
            response: HttpResponse = super().changeform_view(request, *args, **kwargs)
        except ServiceError as error:
            if request.method != "POST":
                raise
            request.service_error = error  # type: ignore[attr-defined]
            response = super().changeform_view(request, *args, **kwargs)
        if _is_stale(getattr(response, "context_data", None) or {}):
            response.status_code = 409
        return response

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are never deleted: services end or revoke them."""
        return False

    def carry_out(
        self,
        request: HttpRequest,
        rows: Iterable[Any],
        done: "StrOrPromise",
        verb: Callable[..., object],
    ) -> None:
        """Call `verb` on each selected row and show a message for each result.

        `done` is a sentence about `%(row)s`.
        """
        for row in rows:
            try:
                verb(operator(request), row)
            except ServiceError as error:
                messages.error(request, f"{row}: {error.message}")
            else:
                messages.success(request, done % {"row": row})


def _with_error(form: type[ModelForm], error: ServiceError) -> type[ModelForm]:
    """Return a form that is invalid by a service error, at the field that it names if any."""

    class RefusedForm(form):  # type: ignore[misc, valid-type]
        def clean(self) -> Any:
            cleaned = super().clean()
            self.add_error(error.param if error.param in self.fields else None, error.message)
            return cleaned

    return RefusedForm


def _is_stale(page: dict[str, Any]) -> bool:
    """Return whether a form of an admin page, or a row of its tables, was refused as stale."""
    forms = [page["adminform"].form] if "adminform" in page else []
    for table in page.get("inline_admin_formsets", ()):
        forms += table.formset.forms
    return any(map(_is_refused_as_stale, forms))


def _is_refused_as_stale(form: Any) -> bool:
    return bool(getattr(form, "is_stale", False))


class ReadOnlyAdmin(OperatorAdmin):
    """Read-only pages."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody may add rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody may change rows."""
        return False


def row_url(page: str, row_id: int | str) -> str:
    """Return the URL of a row's page. The admin would read `_3B` in an id as a semicolon, so ids
    are quoted the way it expects."""
    return reverse(page, args=[quote(row_id)])


class OperatorPage(UnfoldModelAdminViewMixin, TemplateResponseMixin, ContextMixin, View):
    """A read-only page, for staff who may see the rows it is made of.

    Registered in its admin's `get_custom_urls`, as `Page.as_view(model_admin=self)`.
    """

    title: "StrOrPromise"
    purpose: "StrOrPromise"
    permission_required: str
    raise_exception = True

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page; pages with downloads also return files."""
        return self.render_to_response(self.get_context_data(**kwargs))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what every page shows: the admin's frame, a title and a sentence of purpose."""
        context = {**kwargs, "purpose": self.purpose}
        context.pop("model_admin", None)  # also a URL argument; the base class sets it
        return super().get_context_data(**context)
