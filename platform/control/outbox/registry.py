"""Who delivers what: each installed app may bring `deliveries.py` with DELIVERIES, a handler by
kind, and POLICIES, how a kind is tried where the default does not fit."""

from functools import cache
from importlib import import_module
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from control.outbox.delivery import Handler, Policy

DEFAULT = Policy()


@cache
def registered(name: str) -> dict[str, Any]:
    """Return what the apps' `deliveries.py` register under a name such as DELIVERIES."""
    found: dict[str, Any] = {}
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "deliveries"):
            found |= getattr(import_module(f"{config.name}.deliveries"), name, {})
    return found


def handler_of(kind: str) -> Handler | None:
    """Return what delivers a kind, None where no app does."""
    return registered("DELIVERIES").get(kind)


def policy_of(kind: str) -> Policy:
    """Return how a kind is tried."""
    return registered("POLICIES").get(kind, DEFAULT)
