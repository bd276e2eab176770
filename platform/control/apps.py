"""The control plane's own Django app: commands, and the Celery app that tasks are bound to."""

from django.apps import AppConfig


class ControlConfig(AppConfig):
    """Imports the Celery app, so that every process sends its tasks to the same broker."""

    name = "control"
    label = "control"

    def ready(self) -> None:
        """Make `control.celery.app` the current one."""
        from control import celery  # noqa: F401
