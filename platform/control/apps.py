"""The control plane's Django apps, and what each connects at start: who listens to what.

An app's attributes: `duty` is what an operator needs to change its rows in the admin (without one,
an owner), `duty_to_look` what it takes to see them; `facts` are tables that only ever grow;
`deliveries` names the module whose DELIVERIES handle the app's outbox messages.
"""

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig

from control.operators import Duty


class ControlConfig(AppConfig):
    """Commands, and the Celery app that tasks are bound to."""

    name = "control"
    label = "control"

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
    label = "api"


class TenantsConfig(AppConfig):
    """Users, organizations, projects and members."""

    name = "control.tenants"
    label = "tenants"
    verbose_name = "Tenants"
    duty = Duty.HELP_CUSTOMERS

    def ready(self) -> None:
        """Audit sign-ins, and keep a person's sessions few."""
        from control.tenants.sign_in import deeds, sessions

        deeds.listen()
        sessions.listen()


class KeysConfig(AppConfig):
    """API keys."""

    name = "control.keys"
    label = "keys"
    verbose_name = "API keys"
    duty = Duty.HELP_CUSTOMERS

    def ready(self) -> None:
        """End keys with what they belong to."""
        from control.keys import ending

        ending.listen()


class BudgetsConfig(AppConfig):
    """Spending limits beside the monthly ones."""

    name = "control.budgets"
    label = "budgets"
    verbose_name = "Budgets"


class CatalogConfig(AppConfig):
    """Models, variants, quality reports and deployments."""

    name = "control.catalog"
    label = "catalog"
    verbose_name = "Catalog"
    duty = Duty.RUN_MODELS


class PricingConfig(AppConfig):
    """Price books."""

    name = "control.pricing"
    label = "prices"
    verbose_name = "Prices"
    duty = Duty.KEEP_BOOKS


class LimitsConfig(AppConfig):
    """Usage tiers, and the rate limits of organizations, projects and keys."""

    name = "control.limits"
    label = "limits"
    verbose_name = "Rate limits"
    duty = Duty.HELP_CUSTOMERS

    def ready(self) -> None:
        """Put new organizations into a usage tier."""
        from control.limits import placing

        placing.listen()


class AuditConfig(AppConfig):
    """The audit log."""

    name = "control.audit"
    label = "audit"
    verbose_name = "Audit"
    facts = ("audit_entry", "audit_link", "audit_proof")

    def ready(self) -> None:
        """Record what operators view, and register the audit log's metrics."""
        from control.audit import operator_access
        from control.audit.selectors import metrics
        from control.telemetry.metrics import register

        operator_access.listen()
        register(metrics)


class MailConfig(AppConfig):
    """Emails, and the local mailbox that shows them where none leave."""

    name = "control.mail"
    label = "mail"
    verbose_name = "Mail"
    duty_to_look = Duty.MANAGE_OPERATORS
    """An email may hold a live link of another operator's."""
    deliveries = "control.mail.delivery"


class OutboxConfig(AppConfig):
    """Messages to the outside that are delivered until done."""

    name = "control.outbox"
    label = "outbox"
    verbose_name = "Outbox"
    duty = Duty.HELP_CUSTOMERS

    def ready(self) -> None:
        """Register the outbox's metrics."""
        from control.outbox.services import metrics
        from control.telemetry.metrics import register

        register(metrics)


class FeedConfig(AppConfig):
    """The change feed that the data plane follows."""

    name = "control.feed"
    label = "publish"
    verbose_name = "Change feed"


class GatewaysConfig(AppConfig):
    """Which credential owns which gateway, and which gateways are alive."""

    name = "control.gateways"
    label = "gateways"
    verbose_name = "Gateways"
    facts = ("gateways_named",)


class IdempotencyConfig(AppConfig):
    """Idempotency keys of inference requests."""

    name = "control.idempotency"
    label = "idempotency"
    verbose_name = "Idempotency"


class DataplaneConfig(AppConfig):
    """What gateways and the fleet call."""

    name = "control.dataplane"
    label = "dataplane"
    verbose_name = "Data plane"

    def ready(self) -> None:
        """Erase stored responses where an organization turns idempotency off, or is deleted."""
        from control.dataplane import idempotency

        idempotency.listen()


class WebhooksConfig(AppConfig):
    """Customers' webhook endpoints, and what was sent to them."""

    name = "control.webhooks"
    label = "webhooks"
    verbose_name = "Webhooks"
    deliveries = "control.webhooks.delivery"

    def ready(self) -> None:
        """End endpoints with their organization; record deliveries that the outbox gives up."""
        from control.webhooks import delivery, services

        services.listen()
        delivery.listen()


class SsoConfig(AppConfig):
    """Identity providers of organizations, their domains, and whom SCIM provisions."""

    name = "control.sso"
    label = "sso"
    verbose_name = "Single sign-on"
    duty = Duty.HELP_CUSTOMERS

    def ready(self) -> None:
        """End connections with their organization."""
        from control.sso import ending

        ending.listen()


class DataRequestsConfig(AppConfig):
    """Exports and erasures of a person's data."""

    name = "control.data_requests"
    label = "privacy"
    verbose_name = "Privacy"
    duty = Duty.HELP_CUSTOMERS
    duty_to_look = Duty.HELP_CUSTOMERS
