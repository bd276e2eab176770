"""Pages of the operator that are no list of rows: figures, charts and tables of their own, in the
admin's frame and under its permissions."""

from typing import Any

from django.views.generic import TemplateView
from unfold.views import UnfoldModelAdminViewMixin


class OperatorPage(UnfoldModelAdminViewMixin, TemplateView):
    """A page to look at, for staff who may see the rows it is made of.

    Registered in its admin's `get_custom_urls`, as `Page.as_view(model_admin=self)`.
    """

    title: str
    purpose: str
    permission_required: str
    raise_exception = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what every page shows: the admin's frame, a title and a sentence of purpose."""
        shared = {**kwargs, "purpose": self.purpose}
        shared.pop("model_admin", None)  # the address names it too, the frame sets it
        return super().get_context_data(**shared)
