"""Every signal of billing has a receiver, and every type of webhook event a sender."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from django.dispatch import Signal

import billing
from control.webhooks.models import EVENT_TYPES

pytestmark = pytest.mark.unit
ROOT = Path(billing.__path__[0]).parent


def signals() -> dict[str, Signal]:
    """The signals that billing defines, by the name of their module and their own."""
    return {
        f"{module.name}.{name}": value
        for module in walk_packages(billing.__path__, "billing.")
        if module.name.endswith(".signals")
        for name, value in vars(import_module(module.name)).items()
        if isinstance(value, Signal)
    }


def test_every_signal_is_defined_where_it_is_looked_for() -> None:
    defined = re.compile(r"^\w+ = Signal\(", re.MULTILINE)
    files = (ROOT / "billing").rglob("*.py")
    assert sum(len(defined.findall(file.read_text())) for file in files) == len(signals())


@pytest.mark.parametrize("name", sorted(signals()))
def test_somebody_hears_every_signal(name: str) -> None:
    assert signals()[name].receivers


def test_every_type_of_webhook_event_is_sent_somewhere() -> None:
    files = [*(ROOT / "billing").rglob("*.py"), *(ROOT / "platform" / "control").rglob("*.py")]
    sources = "".join(
        file.read_text() for file in files if not file.match("control/webhooks/models.py")
    )
    quoted = set(re.findall(r"""["']([a-z_]+\.[a-z_]+)["']""", sources))
    assert EVENT_TYPES.keys() <= quoted
