"""The command that a customer pastes first, with the key and the address that are theirs."""

import json
from functools import cached_property

from django.conf import settings

from control.keys import selectors as keys
from control.keys.models import ApiKey
from web.console.names import Names
from web.console.page import Page

MODEL = "model-name"
"""What stands in the command while nothing is offered."""


class FirstCall:
    """Asked for only by the parts of a page that teach the first call."""

    def __init__(self, page: Page, names: Names | None = None) -> None:
        """`names` spares a question where the page knows the models' names already."""
        self._page = page
        self._names = names or Names(page)

    @cached_property
    def key(self) -> ApiKey | None:
        """The newest key, None without any."""
        return keys.keys(self._page.organization, project=self._page.project).first()

    @cached_property
    def curl(self) -> str:
        """A chat completion with the first model, as one command."""
        return curl(next(iter(self._names.models.values()), MODEL))


def curl(model: str) -> str:
    """Return a chat completion as one curl command, for the secret in the shell's environment."""
    body = {"model": model, "messages": [{"role": "user", "content": "What is Penstock?"}]}
    return (
        f"curl {settings.CONFIG.api_base}/chat/completions \\\n"
        '  -H "Authorization: Bearer $PENSTOCK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{json.dumps(body)}'"
    )
