"""Requests with idempotency keys, to a gateway whose organizations take them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tests.serving.gateway.routes import CHAT, Route
from tests.support import catalog
from tests.support.gateway import Stack, eventually

KEY = {"idempotency-key": "order-17"}


@dataclass(frozen=True)
class Told:
    """What a client was told; `status` is 0 where it was told nothing."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_again(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def error(self) -> dict[str, str]:
        error: dict[str, str] = json.loads(self.body)["error"]
        return error


async def take_keys(stack: Stack, *tenants: catalog.Tenant, takes: bool = True) -> None:
    """Have organizations take idempotency keys, the stack's own unless others are named."""
    for tenant in tenants or (stack.tenant,):
        organization = msgspec.structs.replace(tenant.organization, takes_idempotency_keys=takes)
        stack.control.feed.publish("organization", organization.organization_id, organization)
    await eventually(lambda: stack.gateway.directory.mirror.version == stack.control.feed.version)


async def ask(
    stack: Stack, route: Route = CHAT, *, headers: Mapping[str, str] = KEY, **extra: object
) -> Told:
    """Ask, and return all that was told."""
    async with stack.post(route.path, route.body | extra, dict(headers)) as reply:
        return Told(reply.status, reply.headers, await reply.read())
