"""The changes of an audit event, in words. Events hold exact values (nano-dollars, ISO times, ids);
pages and files show them with their labels, units, and a word for what is unset."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from serving.contract.money import CENT_NANOS, exact_dollars

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

ANY, NEVER, NO_LIMIT, OFF = _("any"), _("never"), _("no limit"), _("off")
LABELS: "dict[str, StrOrPromise]" = {
    "accelerator": _("GPUs"),
    "account": _("Account"),
    "accuracy": _("Accuracy"),
    "address": _("Address"),
    "address_changed": _("Email changed"),
    "alert_percents": _("Alerts at"),
    "allowed_models": _("Allowed models"),
    "allowed_networks": _("Allowed networks"),
    "allowed_origins": _("Pages that may call"),
    "allowed_regions": _("Allowed regions"),
    "amount_cents": _("Amount"),
    "as_of": _("As of"),
    "attempts": _("Attempts"),
    "bank_details": _("Bank details"),
    "because": _("Reason"),
    "billing_mode": _("Billing mode"),
    "cached_input_nanos": _("Price of cached input"),
    "capabilities": _("Capabilities"),
    "city": _("City"),
    "claim": _("Claim with groups"),
    "client_id": _("Client ID"),
    "concurrent_requests": _("Concurrent requests"),
    "confirmation": _("Confirmation"),
    "connect_seconds": _("Time to connect"),
    "context_tokens": _("Context"),
    "country": _("Country"),
    "credit_days": _("Credit lasts"),
    "credit_limit_nanos": _("Credit limit"),
    "credit_note_prefix": _("Prefix of credit notes"),
    "currency": _("Currency"),
    "data_request": _("Request"),
    "days": _("Days"),
    "declines": _("Declined payments"),
    "dedicated_to": _("Dedicated to"),
    "default": _("Role without a mapped group"),
    "default_variant": _("Default variant"),
    "delivery": _("Delivery"),
    "description": _("Description"),
    "dimensions": _("Dimensions"),
    "display_name": _("Name"),
    "domain": _("Domain"),
    "domains": _("Domains"),
    "done_days": _("Days done"),
    "due_cents": _("Amount due"),
    "effective_at": _("In force from"),
    "email": _("Email"),
    "ended": _("Ended"),
    "ended_count": _("Projects and API keys that ended"),
    "ends_at": _("In force until"),
    "engine": _("Engine"),
    "engine_arguments": _("Engine arguments"),
    "event_id": _("Usage event"),
    "event_types": _("Events"),
    "expires_at": _("Expires"),
    "external_id": _("External ID"),
    "external_urls": _("External URLs"),
    "family_name": _("Family name"),
    "first_byte_seconds": _("Time to the first byte"),
    "first_day": _("First day"),
    "fleet": _("Fleet"),
    "footer": _("Footer"),
    "gap_seconds": _("Longest pause"),
    "gateway_id": _("Gateway"),
    "given_name": _("Given name"),
    "heir": _("API keys go to"),
    "held_nanos": _("Held"),
    "host": _("Host"),
    "hour": _("Hour (UTC)"),
    "hourly_cost_nanos": _("Cost of a replica"),
    "idempotency_enabled": _("Idempotency keys"),
    "input_nanos": _("Price of input"),
    "input_tokens_min": _("From input tokens"),
    "input_tokens_per_minute": _("Input tokens"),
    "invoice_id": _("Invoice"),
    "invoice_note": _("Note on invoices"),
    "is_active": _("Active"),
    "is_default": _("Default"),
    "is_enabled": _("Enabled"),
    "is_hard": _("Refuses requests beyond it"),
    "is_on": _("On"),
    "key": _("Reference"),
    "keys": _("API keys that ended"),
    "keys_to": _("API keys went to"),
    "kind": _("Kind"),
    "last_day": _("Last day"),
    "legal_entity": _("Legal entity"),
    "legal_name": _("Legal name"),
    "limit_nanos": _("Limit"),
    "line1": _("Address"),
    "line2": _("Address, second line"),
    "low_balance_nanos": _("Alert below a balance of"),
    "low_runway_days": _("Alert when it lasts"),
    "map": _("Roles of groups"),
    "member_count": _("Members"),
    "members": _("Members"),
    "members_added": _("Members added"),
    "members_removed": _("Members removed"),
    "method": _("Payment method"),
    "micros": _("Worth of a dollar"),
    "min_cents": _("Smallest amount collected"),
    "missing": _("Missing"),
    "model": _("Model"),
    "monthly_cap_cents": _("Most per month"),
    "name": _("Name"),
    "name_changed": _("Given or family name changed"),
    "nanos": _("Amount"),
    "note": _("Note"),
    "number": _("Number"),
    "number_prefix": _("Prefix of invoices"),
    "operator_token": _("Operator token"),
    "organization": _("Organization"),
    "organization_ids": _("Open to"),
    "output_nanos": _("Price of output"),
    "output_tokens_max": _("Longest output"),
    "output_tokens_per_minute": _("Output tokens"),
    "override_reason": _("Reason to publish now"),
    "owner": _("Owner"),
    "page": _("Page"),
    "paid_min_nanos": _("From an amount paid of"),
    "paid_nanos": _("Amount paid"),
    "paper": _("Paper"),
    "parameter_count": _("Parameters"),
    "parent": _("Parent"),
    "people": _("People"),
    "permissions": _("Permissions"),
    "pipeline_parallel_size": _("Pipeline parallel size"),
    "postal_code": _("Postal code"),
    "precision": _("Precision"),
    "previous_secret_ends_at": _("Previous secret ends"),
    "project": _("Project"),
    "provider": _("Provider"),
    "public_id": _("Name in requests"),
    "purchase_order": _("Purchase order"),
    "purpose": _("Purpose"),
    "queue_seconds": _("Time in the queue"),
    "rate_basis_points": _("Rate"),
    "reason": _("Reason"),
    "recipients": _("Recipients of invoices"),
    "redemptions_max": _("Most redemptions"),
    "reference": _("Reference"),
    "region": _("Region"),
    "replicas_max": _("Most replicas"),
    "replicas_min": _("Replicas"),
    "report": _("Quality report"),
    "requests_per_minute": _("Requests"),
    "reserved_share": _("Reserved for waiting clients"),
    "reverse_charge": _("Reverse charge"),
    "role": _("Role"),
    "scopes": _("Permissions"),
    "secret": _("Secret"),
    "service_tiers": _("Service tiers"),
    "settled_nanos": _("Debt paid"),
    "size_bytes": _("Size"),
    "sleep_after_seconds": _("Sleeps after"),
    "slots": _("Slots"),
    "spend_limit_nanos": _("Spending limit"),
    "starts_on": _("Starts"),
    "step": _("Step"),
    "taken_cents": _("Taken back"),
    "task": _("Task"),
    "tax_calculator": _("Tax calculator"),
    "tax_cents": _("Tax"),
    "tax_id": _("Tax ID"),
    "tax_ids": _("Tax IDs"),
    "tax_nanos": _("Tax"),
    "tensor_parallel_size": _("Tensor parallel size"),
    "terms_days": _("Payment terms"),
    "threshold_cents": _("Below a balance of"),
    "tier": _("Tier"),
    "total_cents": _("Amount"),
    "total_seconds": _("Longest request"),
    "unusual_factor": _("Alert above the usual spending"),
    "usage_tier": _("Usage tier"),
    "user_name": _("User name"),
    "variant": _("Variant"),
    "vocabulary_size": _("Vocabulary"),
    "wake_seconds": _("Wait for a start"),
    "way": _("Method"),
    "ways": _("Methods"),
    "weight": _("Share of a busy pool"),
    "weights": _("Weights"),
    "weights_digest": _("Digest of the weights"),
    "why": _("Reason"),
    "words": _("Message"),
}
"""The label of each field that audit events hold."""
UNSET: "dict[str, StrOrPromise]" = {
    "allowed_models": ANY,
    "allowed_networks": ANY,
    "allowed_regions": ANY,
    "credit_days": _("without end"),
    "dedicated_to": _("nobody"),
    "ends_at": _("without end"),
    "expires_at": NEVER,
    "hourly_cost_nanos": _("unknown"),
    "low_balance_nanos": OFF,
    "low_runway_days": OFF,
    "alert_percents": OFF,
    "model": _("all models together"),
    "organization": _("all organizations"),
    "organization_ids": _("all organizations"),
    "redemptions_max": _("any number"),
    "service_tiers": ANY,
    "unusual_factor": OFF,
    "weights_digest": _("unknown"),
    **dict.fromkeys(
        (
            "limit_nanos",
            "spend_limit_nanos",
            "requests_per_minute",
            "input_tokens_per_minute",
            "output_tokens_per_minute",
            "concurrent_requests",
        ),
        NO_LIMIT,
    ),
}
"""The word for a field that is unset, where it is not "none"."""
EMPTY: "dict[str, StrOrPromise]" = {"organization_ids": _("nobody")}
"""The word for an empty list that differs from an unset one."""
WITH_UNIT: "dict[str, StrOrPromise]" = {
    "spend_limit_nanos": _("%(value)s a month"),
    "monthly_cap_cents": _("%(value)s a month"),
    "hourly_cost_nanos": _("%(value)s an hour"),
    "input_nanos": _("%(value)s per million tokens"),
    "cached_input_nanos": _("%(value)s per million tokens"),
    "output_nanos": _("%(value)s per million tokens"),
    "requests_per_minute": _("%(value)s a minute"),
    "input_tokens_per_minute": _("%(value)s a minute"),
    "output_tokens_per_minute": _("%(value)s a minute"),
    "context_tokens": _("%(value)s tokens"),
    "output_tokens_max": _("%(value)s tokens"),
}
"""The unit of a figure, around its value."""


def changes_of(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what an event's details say, as labels and texts: first what changed, old → new, then
    the rest. `before` and `after` hold the same fields; only `after` is what a creation set."""
    rest = dict(details)
    before, after = rest.pop("before", None), rest.pop("after", None)
    return [*_differences(before or {}, after or {}), *(_line(*field) for field in rest.items())]


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in (*before, *(name for name in after if name not in before)):
        old, new = before.get(name), after.get(name)
        if not before:
            yield _line(name, new)
        elif not after:
            yield label_of(name), f"{text_of(name, old)} → {gettext('none')}"
        elif old != new:
            yield label_of(name), f"{text_of(name, old)} → {text_of(name, new)}"


def _line(name: str, value: Any) -> tuple[str, str]:
    return label_of(name), text_of(name, value)


def label_of(name: str) -> str:
    """Return a field's label."""
    return str(LABELS.get(name) or name.replace("_", " ").capitalize())


def text_of(name: str, value: Any) -> str:
    """Return a field's value in words, with its unit."""
    if value is None or value in ("", [], {}):
        words = EMPTY if value == [] and name in EMPTY else UNSET
        return str(words.get(name, _("none")))
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if isinstance(value, (int, float)):
        text = _number(name, value)
        return str(WITH_UNIT[name]) % {"value": text} if name in WITH_UNIT else text
    if isinstance(value, list):
        return ", ".join(text_of(name, each) for each in value)
    if isinstance(value, dict):
        return _dictionary(value)
    return _time(str(value)) if name.endswith("_at") else str(value)


def _dictionary(value: Mapping[str, Any]) -> str:
    if value.keys() == {"id", "name"}:
        return str(value["name"])
    return ", ".join(f"{key}: {text_of('', each)}" for key, each in value.items())


def _number(name: str, value: float) -> str:
    for suffix, form in FORMS.items():
        if name == suffix or name.endswith(f"_{suffix}"):
            return form(value)
    return f"{value:,}"


def _time(text: str) -> str:
    """Return an ISO time in UTC, and any other text as it is."""
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(value: float) -> str:
    return f"{value:,g} s" if value else gettext("never")


def _days(value: float) -> str:
    return ngettext("%(count)d day", "%(count)d days", int(value)) % {"count": value}


FORMS: dict[str, Callable[[float], str]] = {
    "nanos": lambda value: exact_dollars(int(value)),
    "cents": lambda value: exact_dollars(int(value) * CENT_NANOS),
    "seconds": _seconds,
    "days": _days,
    "bytes": lambda value: f"{value / 1e6:,.1f} MB",
    "points": lambda value: f"{value / 100:g} %",
    "percents": lambda value: f"{value} %",
    "share": lambda value: f"{value:.1%}",
    "accuracy": lambda value: f"{value:.1%}",
    "micros": lambda value: f"{value / 1e6:.6f}",
    "hour": lambda value: f"{int(value):02d}:00",
    "factor": lambda value: f"{value} times",
}
"""The formats of numbers, by the last word of the field's name."""
