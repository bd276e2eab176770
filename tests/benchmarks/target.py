"""What the load is sent to: the engine itself, or something that stands before it."""

from dataclasses import dataclass

from tests.benchmarks.process import Child


@dataclass(frozen=True)
class Target:
    """A name for the tables, where it listens, and the process to watch (None: the engine)."""

    name: str
    base_url: str
    api_key: str = ""
    child: Child | None = None

    @property
    def chat_url(self) -> str:
        return f"{self.base_url}/v1/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
