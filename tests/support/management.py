"""A tenant's program that manages its keys over the management API."""

from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True)
class Management:
    """One organization, reached with a key of the scope `manage`."""

    session: aiohttp.ClientSession
    console_url: str
    organization_id: str
    project_id: str
    secret: str

    async def mint(self, name: str = "tests") -> tuple[str, str]:
        """Return a new key's id and secret."""
        key = await self._post("keys", {"project_id": self.project_id, "name": name})
        return key["id"], key["secret"]

    async def revoke(self, key_id: str) -> None:
        await self._post(f"keys/{key_id}/revoke", {})

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"{self.console_url}/api/v1/organizations/{self.organization_id}/{path}"
        headers = {"authorization": f"Bearer {self.secret}"}
        async with self.session.post(url, json=body, headers=headers) as reply:
            assert reply.status < 300, await reply.text()
            return await reply.json() if reply.status != 204 else {}
