"""The Django app of collection."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class CollectionConfig(AppConfig):
    """Who is overdue, and what follows from it."""

    name = "billing.collection"
    label = "collection"
    verbose_name = _("Collection")
    deliveries = "billing.collection.deliveries"
    change_permission = Permission.FINANCE_WRITE
    append_only = ("collection_step",)
    checks = "billing.collection.integrity"

    def ready(self) -> None:
        """Follow invoices, payments and disputes in the transactions that change them, and have a
        word in the end of organizations."""
        from billing.collection import ending, following

        ending.listen()
        following.listen()
