"""The control plane's Django apps, and the signal receivers that each connects at start.

An app's attributes: `change_permission` is the permission to change its rows in the admin (without
one, only owners may), `view_permission` the one to see them; `append_only` lists tables that only
grow; `deliveries` names the module whose DELIVERIES handle its outbox messages.
"""

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class ControlAppConfig(AppConfig):
    """The management commands, and the Celery app that tasks are bound to."""

    name = "control"

    def ready(self) -> None:
        """Make `control.celery.app` the current one, so that every process sends its tasks to the
        same broker."""
        from control import celery  # noqa: F401


class OperatorSiteConfig(AdminConfig):
    """Django's admin with this platform's sign-in."""

    default_site = "control.admin.site.OperatorSite"


class ApiConfig(AppConfig):
    """The management API."""

    name = "control.api"


class AccountsConfig(AppConfig):
    """People, and how they sign in."""

    name = "control.accounts"
    verbose_name = _("Accounts")
    change_permission = Permission.CUSTOMERS_WRITE

    def ready(self) -> None:
        """Send account events, keep former addresses, keep a person's sessions few, and name people
        in the audit log."""
        from control.accounts import sessions, signals
        from control.accounts.models import UserDirectory
        from control.audit.pseudonyms import register

        signals.listen()
        sessions.listen()
        register(UserDirectory())


class OrganizationsConfig(AppConfig):
    """Organizations, projects and members."""

    name = "control.organizations"
    verbose_name = _("Organizations")
    change_permission = Permission.CUSTOMERS_WRITE

    def ready(self) -> None:
        """Audit account events, and name invited people in the audit log."""
        from control.audit.pseudonyms import register
        from control.organizations import account_events
        from control.organizations.selectors import InvitationDirectory

        account_events.listen()
        register(InvitationDirectory())


class OperatorsConfig(AppConfig):
    """The operators of the platform."""

    name = "control.operators"
    verbose_name = _("Operators")

    def ready(self) -> None:
        """Name invited operators in the audit log."""
        from control.audit.pseudonyms import register
        from control.operators.selectors import OperatorInvitationDirectory

        register(OperatorInvitationDirectory())


class ApiKeysConfig(AppConfig):
    """API keys."""

    name = "control.api_keys"
    verbose_name = _("API keys")
    change_permission = Permission.CUSTOMERS_WRITE

    def ready(self) -> None:
        """Revoke keys with what they belong to."""
        from control.api_keys import lifecycle

        lifecycle.listen()


class CatalogConfig(AppConfig):
    """Models, variants, quality reports and deployments."""

    name = "control.catalog"
    verbose_name = _("Catalog")
    change_permission = Permission.CATALOG_WRITE

    def ready(self) -> None:
        """Show failed replicas beside the alarms."""
        from control.alarms.page import register
        from control.catalog.attention import failed_replicas

        register(failed_replicas)


class PricingConfig(AppConfig):
    """Price books."""

    name = "control.pricing"
    verbose_name = _("Prices")
    change_permission = Permission.FINANCE_WRITE


class LimitsConfig(AppConfig):
    """Usage tiers, rate limits and spending limits."""

    name = "control.limits"
    verbose_name = _("Limits")
    change_permission = Permission.CUSTOMERS_WRITE

    def ready(self) -> None:
        """Put new organizations into a usage tier."""
        from control.limits import usage_tiers

        usage_tiers.listen()


class AuditConfig(AppConfig):
    """The audit log."""

    name = "control.audit"
    verbose_name = _("Audit log")
    append_only = ("audit_event", "audit_chain_link", "audit_chain_verification")

    def ready(self) -> None:
        """Record what operators view, and register the audit log's metrics."""
        from control.audit import operator_access
        from control.audit.selectors import metrics
        from control.telemetry.metrics import register

        operator_access.listen()
        register(metrics)


class MailConfig(AppConfig):
    """Emails, and the local mailbox that shows them if none are sent."""

    name = "control.mail"
    verbose_name = _("Mail")
    view_permission = Permission.OPERATORS_WRITE
    """An email may hold another operator's live link."""
    deliveries = "control.mail.delivery"


class AlarmsConfig(AppConfig):
    """Counts of what operators must look at."""

    name = "control.alarms"
    verbose_name = _("Alarms")


class OutboxConfig(AppConfig):
    """Messages to other systems, retried until they are delivered."""

    name = "control.outbox"
    verbose_name = _("Outbox")
    change_permission = Permission.CUSTOMERS_WRITE

    def ready(self) -> None:
        """Register the outbox's metrics."""
        from control.outbox.services import metrics
        from control.telemetry.metrics import register

        register(metrics)


class FeedConfig(AppConfig):
    """The change feed that the data plane follows."""

    name = "control.feed"
    verbose_name = _("Change feed")


class DataplaneConfig(AppConfig):
    """The internal API that gateways and the fleet call."""

    name = "control.dataplane"
    verbose_name = _("Data plane")
    append_only = ("dataplane_gateway_owner",)

    def ready(self) -> None:
        """Erase stored responses when an organization turns idempotency off or is deleted."""
        from control.dataplane import idempotency

        idempotency.listen()


class WebhooksConfig(AppConfig):
    """Customers' webhook endpoints and their deliveries."""

    name = "control.webhooks"
    verbose_name = _("Webhooks")
    deliveries = "control.webhooks.delivery"

    def ready(self) -> None:
        """Delete endpoints with their organization; record deliveries that the outbox gives up."""
        from control.webhooks import delivery, services

        services.listen()
        delivery.listen()


class SsoConfig(AppConfig):
    """Identity providers of organizations, their domains, and users that SCIM provisions."""

    name = "control.sso"
    verbose_name = _("Single sign-on")
    change_permission = Permission.CUSTOMERS_WRITE

    def ready(self) -> None:
        """End connections with their organization."""
        from control.sso import connections

        connections.listen()


class DataRequestsConfig(AppConfig):
    """Exports and erasures of a person's data."""

    name = "control.data_requests"
    verbose_name = _("Data requests")
    change_permission = Permission.CUSTOMERS_WRITE
    view_permission = Permission.CUSTOMERS_WRITE
