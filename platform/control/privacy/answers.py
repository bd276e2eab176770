"""A copy on its way out."""

from django.http import HttpResponse

from control.actor import Actor
from control.privacy.models import Errand
from control.privacy.services import take_copy


def copy_answer(actor: Actor, errand: Errand) -> HttpResponse:
    """Return the ZIP as a file that nobody on the way keeps."""
    content = take_copy(actor=actor, errand=errand)
    name = f"personal-data-{errand.created_at:%Y-%m-%d}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type="application/zip", headers=headers)
