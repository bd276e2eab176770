"""Django's admin, with our door."""

from django.contrib.admin.apps import AdminConfig


class OperatorSiteConfig(AdminConfig):
    """Django's admin with this door."""

    default_site = "control.admin.site.OperatorSite"
