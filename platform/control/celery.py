"""The Celery app `control`: the tasks of `control.tasks`, and those of each app of the layers above
(`tasks.py`, with the SCHEDULE in `beat.py`)."""

import os
from importlib import import_module
from typing import Any

from celery import Celery
from django.apps import apps
from django.utils.module_loading import module_has_submodule

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")

app = Celery("control")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
import_module("control.telemetry.celery_signals")


def beat_schedule() -> dict[str, dict[str, Any]]:
    """Return the schedules of all installed apps, whose entries have distinct names."""
    schedule: dict[str, dict[str, Any]] = {**import_module("control.tasks").SCHEDULE}
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "beat"):
            schedule |= import_module(f"{config.name}.beat").SCHEDULE
    return schedule


@app.on_after_finalize.connect
def schedule_beat(sender: Celery, **_: object) -> None:
    """Fill the schedule once Django's apps are known."""
    sender.conf.beat_schedule = beat_schedule()
