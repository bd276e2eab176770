"""The operator's page of the outbox: what waits and what was given up, by kind."""

from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from control.admin.pages import OperatorPage
from control.outbox.selectors import messages, standings

SHOWN_MAX = 50


class OutboxPage(OperatorPage):
    """How each kind of message stands, and the ones that were given up."""

    title = "Outbox"
    purpose = (
        "Mails, webhooks and calls that are to leave this platform. Each is tried until it is"
        " delivered; what cannot be is given up and waits here for somebody to try again."
    )
    permission_required = "outbox.view_message"
    template_name = "outbox/standing.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the kinds, and the messages that need a person."""
        rows = [
            {
                "standing": each,
                "waiting_url": list_url(each.kind, "waiting"),
                "failing_url": list_url(each.kind, "failing"),
                "given_up_url": list_url(each.kind, "given_up"),
            }
            for each in standings(timezone.now())
        ]
        given_up = messages().filter(given_up_at__isnull=False)[:SHOWN_MAX]
        return super().get_context_data(
            **kwargs, rows=rows, given_up=given_up, all_url=list_url("", "")
        )


def list_url(kind: str, state: str) -> str:
    """Return the address of the messages of a kind in a state; of all where both are empty."""
    chosen = {"kind__exact": kind, "state": state}
    query = urlencode({name: value for name, value in chosen.items() if value})
    address = reverse("admin:outbox_message_changelist")
    return f"{address}?{query}" if query else address
