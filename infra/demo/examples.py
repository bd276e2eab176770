"""The text that is printed when the platform is ready: credentials, two calls to paste, what is
still loading, and what to do next."""

from collections.abc import Sequence

from infra.local.config import LocalConfig
from infra.local.seed import Credentials
from infra.local.state_dir import StateDirectory

QUESTION = "What is Penstock?"


def summary(credentials: Credentials, config: LocalConfig, loading: Sequence[str] = ()) -> str:
    """Return the whole text. `loading` names the models whose replicas are not ready yet."""
    owner, operator = credentials.owner, credentials.operator
    return f"""
Penstock is ready.

  Console   {credentials.console_url}
            {owner.email}   {owner.password}
  Admin     {credentials.admin_url}
            {operator.email}   {operator.password}   (an authenticator app is set up first)
  Mailbox   {credentials.admin_url}mail/storedemail/   (mails stay here until EMAIL_URL is set)
  API       {credentials.api_base}
  Also in   {StateDirectory(config.home).credentials_file}

Ask the model:

{curl(credentials, config.model_id)}

or in Python:

{openai(credentials, config.model_id)}
{embeddings(config.embedder_id) if config.embedder_weights else ""}\
{_loading(loading)}
Next:
  1. Make one of these calls, and see its tokens and cost under Usage in the console.
  2. Change a price or add a model in the admin; PENSTOCK_MODEL=<folder or Hugging Face id> make up
     serves a model of yours.
  3. Look at `penstock status` and `penstock logs --follow`; for production, read
     docs/operate/deploy.md.
"""


def _loading(names: Sequence[str]) -> str:
    return f"\nStill loading: {', '.join(names)}.\n" if names else ""


def embeddings(embedder_id: str) -> str:
    """Return how the same client has texts embedded."""
    return f"""
and for embeddings:

client.embeddings.create(model="{embedder_id}", input=["{QUESTION}"]).data[0].embedding
"""


def curl(credentials: Credentials, model_id: str) -> str:
    """Return a first call with curl."""
    return f"""\
curl {credentials.api_base}/chat/completions \\
  -H "Authorization: Bearer {credentials.api_key}" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{model_id}", "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'"""


def openai(credentials: Credentials, model_id: str) -> str:
    """Return a first call with OpenAI's own client."""
    return f"""\
from openai import OpenAI
client = OpenAI(base_url="{credentials.api_base}", api_key="{credentials.api_key}")
messages = [{{"role": "user", "content": "{QUESTION}"}}]
answer = client.chat.completions.create(model="{model_id}", messages=messages)
print(answer.choices[0].message.content)"""
