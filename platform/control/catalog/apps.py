"""The Django app of catalog."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Models, variants, quality reports and deployments."""

    name = "control.catalog"
    label = "catalog"
    verbose_name = "Catalog"
    default_auto_field = "django.db.models.BigAutoField"
