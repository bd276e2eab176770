"""What is printed when all is ready: addresses, logins, and two calls to paste."""

from infra.local.seed import Credentials
from infra.local.state_dir import StateDirectory

QUESTION = "What is Penstock?"


def summary(
    credentials: Credentials, home: StateDirectory, model_id: str, embedder_id: str | None = None
) -> str:
    """Return the whole text."""
    owner, operator = credentials.owner, credentials.operator
    return f"""
Penstock is ready.

  Console   {credentials.console_url}
            {owner.email}   {owner.password}
  Admin     {credentials.admin_url}
            {operator.email}   {operator.password}   (an authenticator app is set up first)
  Mailbox   {credentials.admin_url}mail/storedemail/   (mails stay here until EMAIL_URL is set)
  API       {credentials.api_base}
  The same  {home.credentials_file}

Ask the model:

{curl(credentials, model_id)}

or in Python:

{openai(credentials, model_id)}
{embeddings(embedder_id) if embedder_id else ""}"""


def embeddings(embedder_id: str) -> str:
    """Return how the same client has texts embedded; the model may still be loading."""
    return f"""
and for embeddings, once their engine is up too:

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
