"""Code samples for a customer's first call, with their key and the API's URL."""

import json
from dataclasses import dataclass
from functools import cached_property

from django.conf import settings
from django.utils import timezone

from control.api_keys import selectors as keys
from control.api_keys.models import ApiKey
from web.console.base import PageContext
from web.console.labels import IdLabels

MODEL = "model-name"
"""The placeholder for a model while none is available."""
QUESTION = "What is Penstock?"


@dataclass(frozen=True, slots=True)
class CodeSample:
    """A call in one language."""

    language: str
    code: str


class CodeSamples:
    """The samples of a page, computed only where the page shows them."""

    def __init__(self, page: PageContext, names: IdLabels | None = None) -> None:
        """Pass `names` to save a query where the page has loaded the models' names."""
        self._page = page
        self._names = names or IdLabels(page)

    @cached_property
    def key(self) -> ApiKey | None:
        """The newest key that works; None if there is none."""
        organization, project = self._page.organization, self._page.project
        return keys.active_keys(organization, timezone.now(), project=project).first()

    @cached_property
    def curl(self) -> str:
        """A chat completion with the first model, as one command."""
        return curl(next(iter(self._names.talking_models), MODEL))


def curl(model: str) -> str:
    """Return a chat completion as one curl command, for the secret in the shell's environment."""
    message = {"role": "user", "content": QUESTION}
    return _curl("chat/completions", {"model": model, "messages": [message]})


def embeddings_calls(model: str) -> list[CodeSample]:
    """Return a call for embeddings in each language."""
    base, texts = settings.CONFIG.gateway_public_url, json.dumps([QUESTION])
    python = (
        "from openai import OpenAI\n"
        f'client = OpenAI(base_url="{base}", api_key="…")\n'
        f'print(client.embeddings.create(model="{model}", input={texts}).data[0].embedding)'
    )
    javascript = (
        'import OpenAI from "openai";\n'
        f'const client = new OpenAI({{ baseURL: "{base}", apiKey: "…" }});\n'
        f'const reply = await client.embeddings.create({{ model: "{model}", input: {texts} }});\n'
        "console.log(reply.data[0].embedding);"
    )
    return [
        CodeSample("curl", _curl("embeddings", {"model": model, "input": [QUESTION]})),
        CodeSample("Python", python),
        CodeSample("JavaScript", javascript),
    ]


def _curl(route: str, body: dict[str, object]) -> str:
    return (
        f"curl {settings.CONFIG.gateway_public_url}/{route} \\\n"
        '  -H "Authorization: Bearer $PENSTOCK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{json.dumps(body)}'"
    )
