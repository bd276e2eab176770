"""A copy on its way out."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from control.actor import Actor
from control.api.streaming import whole_export
from control.privacy.models import Errand
from control.privacy.services import take_copy


def copy_answer(request: HttpRequest, actor: Actor, errand: Errand) -> HttpResponseBase:
    """Return the ZIP as a file that nobody on the way keeps."""
    return whole_export(
        request,
        lambda: take_copy(actor=actor, errand=errand),
        content_type="application/zip",
        name=f"personal-data-{errand.created_at:%Y-%m-%d}.zip",
    )
