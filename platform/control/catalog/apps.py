"""The Django app of catalog."""

from django.apps import AppConfig

from control.operators import Duty


class CatalogConfig(AppConfig):
    """Models, variants, quality reports and deployments."""

    name = "control.catalog"
    label = "catalog"
    verbose_name = "Catalog"
    duty = Duty.RUN_MODELS
    default_auto_field = "django.db.models.BigAutoField"
