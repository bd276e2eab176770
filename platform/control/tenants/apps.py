"""The Django app of tenants."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Users, organizations, projects and members."""

    name = "control.tenants"
    label = "tenants"
    verbose_name = "Tenants"
    default_auto_field = "django.db.models.BigAutoField"
