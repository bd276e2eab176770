"""The command that a customer pastes first, with the key and the address that are theirs."""

import json
from functools import cached_property

from django.conf import settings

from control.keys import selectors as keys
from control.keys.models import ApiKey
from web.console.offers import offers_for
from web.console.page import Page

MODEL = "model-name"
"""What stands in the command while nothing is offered."""


class FirstCall:
    """Asked for only by the parts of a page that teach the first call."""

    def __init__(self, page: Page) -> None:
        self._page = page

    @cached_property
    def key(self) -> ApiKey | None:
        """The newest key, None without any."""
        return keys.keys(self._page.organization, project=self._page.project).first()

    @cached_property
    def curl(self) -> str:
        """A chat completion with the first offer, as one command."""
        offers = offers_for(self._page.organization)
        return curl(offers[0].public_id if offers else MODEL)


def curl(model: str) -> str:
    """Return a chat completion as one curl command, for the secret in the shell's environment."""
    body = {"model": model, "messages": [{"role": "user", "content": "What is Penstock?"}]}
    return (
        f"curl {settings.CONFIG.api_base}/chat/completions \\\n"
        '  -H "Authorization: Bearer $PENSTOCK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{json.dumps(body)}'"
    )
