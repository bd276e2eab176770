"""Pages of the operator that are no list of rows: figures, charts and tables of their own, in the
admin's frame and under its permissions."""

from typing import Any

from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.generic.base import ContextMixin, TemplateResponseMixin, View
from unfold.views import UnfoldModelAdminViewMixin


def row_url(page: str, row_id: int | str) -> str:
    """Return the address of a row's page: `_3B` in an id would be taken for a semicolon there, so
    ids are quoted as the admin reads them."""
    return reverse(page, args=[quote(row_id)])


class OperatorPage(UnfoldModelAdminViewMixin, TemplateResponseMixin, ContextMixin, View):
    """A page to look at, for staff who may see the rows it is made of.

    Registered in its admin's `get_custom_urls`, as `Page.as_view(model_admin=self)`.
    """

    title: str
    purpose: str
    permission_required: str
    raise_exception = True

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page; one that also sends files returns these."""
        return self.render_to_response(self.get_context_data(**kwargs))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what every page shows: the admin's frame, a title and a sentence of purpose."""
        shared = {**kwargs, "purpose": self.purpose}
        shared.pop("model_admin", None)  # the address names it too, the frame sets it
        return super().get_context_data(**shared)
