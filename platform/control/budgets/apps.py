"""The Django app of budgets."""

from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    """Limits of spending beside the monthly ones."""

    name = "control.budgets"
    label = "budgets"
    verbose_name = "Budgets"
    default_auto_field = "django.db.models.BigAutoField"
