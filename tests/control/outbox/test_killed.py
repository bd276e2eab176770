"""A worker that is killed between any two steps loses nothing, and ends nothing twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from control.outbox.claims import LEASE
from control.outbox.delivery import Delivery
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from tests.fixtures.corpus import quarter
from tests.fixtures.outbox import NOW, delivering, put

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
WORKER = """
import os, signal, sys
import django
django.setup()
from datetime import datetime
from control.outbox import claims, delivery
step, effects, now = sys.argv[1], sys.argv[2], datetime.fromisoformat(sys.argv[3])

def reached(name):
    if step == name:
        os.kill(os.getpid(), signal.SIGKILL)

def handle(delivery):
    reached("before the effect")
    with open(effects, "a") as file:
        file.write(delivery.key + "\\n")
    reached("after the effect")

delivery.registered = lambda name: {"note": handle} if name == "DELIVERIES" else {}
page = claims.claim(now=now, page=10)
reached("after the claim")
for message in page:
    delivery.run_attempt(message, now=now)
reached("at the end")
"""


def killed_at(step: str, effects: Path) -> None:
    """Run a worker that is killed at a step."""
    name = connection.settings_dict["NAME"]
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    done = subprocess.run(
        [sys.executable, "-c", WORKER, step, str(effects), NOW.isoformat()],
        env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "control.settings"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


STEPS = [
    ("after the effect", 2),
    ("after the claim", 1),
    ("before the effect", 1),
    ("at the end", 1),
]


@pytest.mark.parametrize(("step", "effect_count"), quarter(STEPS))
def test_a_killed_worker_is_followed_by_another(
    step: str, effect_count: int, tmp_path: Path
) -> None:
    put(key="one")
    effects = tmp_path / "effects"
    effects.touch()
    killed_at(step, effects)

    def handle(delivery: Delivery) -> None:
        with effects.open("a") as file:
            file.write(f"{delivery.key}\n")

    with delivering({"note": handle}):
        deliver_due(now=NOW + LEASE / 2)
        deliver_due(now=NOW + LEASE)
        deliver_due(now=NOW + 2 * LEASE)
    # At least once; what it did twice it did under one key.
    assert effects.read_text().splitlines() == ["one"] * effect_count
    assert OutboxMessage.objects.get().delivered_at is not None
