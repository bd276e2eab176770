from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """The console: what customers see and do in a browser."""

    name = "web.console"
    label = "console"
