"""The Django app of reading."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class ReadingConfig(AppConfig):
    """Questions about usage and costs; no models."""

    name = "billing.reading"
    label = "reading"
    verbose_name = _("Usage reports")
    change_permission = Permission.FINANCE_WRITE
