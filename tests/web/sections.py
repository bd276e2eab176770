"""Every section of the console: who may look at it, and who may change what with which form.

`test_access_matrix.py` tries all of it and fails where an address is not listed here.
"""

from typing import Any

from django.urls import reverse

from control.permissions import Role
from web.console.urls import urlpatterns

PARAMETERS = {each.name: tuple(each.pattern.converters) for each in urlpatterns}
"""What the address of each section asks for."""

OWNERS = frozenset({Role.OWNER})
ADMINS = OWNERS | {Role.ADMIN}
MONEY = ADMINS | {Role.BILLING}
DEVELOPERS = ADMINS | {Role.DEVELOPER}
EVERYBODY = frozenset(Role)

MAY_LOOK: dict[str, frozenset[Role]] = {
    **dict.fromkeys(
        (
            "overview", "playground", "models", "keys", "usage", "usage_csv", "requests",
            "requests_csv", "requests_jsonl", "receipt", "rates", "settings", "project", "team",
            "member",
        ),
        EVERYBODY,
    ),
    **dict.fromkeys(("key_new", "key", "key_secret"), DEVELOPERS),
    **dict.fromkeys(
        (
            "billing", "billing_payments", "billing_payment", "billing_saved", "billing_profile",
            "limits", "limit", "invoices", "invoice", "invoice_pdf", "running_pdf",
            "credit_note_pdf",
        ),
        MONEY,
    ),
    **dict.fromkeys(
        (
            "project_new", "sso", "audit", "audit_csv", "webhooks", "webhook_new", "webhook",
            "webhook_delivery",
        ),
        ADMINS,
    ),
    "settings_delete": OWNERS,
}  # fmt: skip
MAY_CHANGE: dict[str, frozenset[Role]] = {
    **dict.fromkeys(
        ("key_new", "playground_stream"),
        DEVELOPERS,
    ),
    **dict.fromkeys(
        (
            "billing_top_up", "billing_automatic", "billing_code", "billing_method_new",
            "billing_method_default", "billing_method_remove", "billing_profile", "invoice_pay",
            "billing_request_invoice",
            "limits", "limit", "limit_alerts", "limit_remove", "rates",
        ),
        MONEY,
    ),
    **dict.fromkeys(
        (
            "key_edit", "key_rotate", "key_end_old", "key_revoke",  # the owner's key
            "settings_idempotency", "project_new", "project_rename", "project_origins",
            "project_archive", "project_restore", "team_invite", "invitation_renew",
            "invitation_withdraw", "member_role", "member_remove", "sso_domain_add",
            "sso_domain_verify", "sso_domain_remove", "sso_roles", "scim_heir", "webhook_new",
            "webhook_update", "webhook_switch", "webhook_rotate", "webhook_test", "webhook_delete",
            "webhook_resend",
        ),
        ADMINS,
    ),
    **dict.fromkeys(
        (
            "settings_rename", "settings_delete", "sso_oidc", "sso_saml", "sso_remove",
            "sso_enforce", "sso_forget", "scim_token", "scim_end",
        ),
        OWNERS,
    ),
}  # fmt: skip
PRICES = {"models", "playground"}
"""What shows prices, which are nobody's secret."""
TELL_MONEY = (
    "billing", "key", "limits", "overview", "rates", "receipt", "requests", "requests_csv",
    "requests_jsonl", "usage", "usage_csv",
)  # fmt: skip
"""Some of what shows money to who may see it."""
OF_NO_ORGANIZATION = {
    "home", "invitation", "organization_new", "theme", "personal_data", "personal_data_export",
    "personal_data_erase", "personal_data_download",
}  # fmt: skip
NEED_RECENT_PROOF = {
    "billing_automatic", "billing_code", "billing_method_default", "billing_method_new",
    "billing_method_remove", "billing_profile", "billing_request_invoice", "billing_top_up",
    "invoice_pay", "key_edit", "key_new", "key_rotate", "limit", "limit_remove", "limits",
}  # fmt: skip
"""What moves money or makes keys: carried out soon after a sign-in only. What ends a key is not
among it, so that nothing delays it."""
ENDPOINT: dict[str, Any] = {"url": "https://1.1.1.1/x", "event_types": ["api_key.created"]}
FORMS: dict[str, dict[str, Any]] = {
    "key_new": {"name": "Mine", "project": "{project_id}", "scopes": "inference"},
    "key_edit": {"name": "Mine", "scopes": "inference"},
    "key_rotate": {"overlap": "24", "last_four": "{last_four}"},
    "key_revoke": {"confirmation": "Backend"},
    "playground_stream": {
        "model": "penstock-demo", "project_id": "{project_id}",
        "messages": [{"role": "user", "content": "Hello"}],
    },
    "billing_top_up": {"choice": "5000", "method": "new", "form_id": "f1"},
    "billing_request_invoice": {"amount_cents": "100", "form_id": "f1"},
    "billing_automatic": {
        "is_on": "on", "threshold_cents": "10", "amount_cents": "50", "monthly_cap_cents": "200",
    },
    "billing_profile": {
        "legal_name": "Acme", "line1": "1", "postal_code": "10115", "city": "Berlin",
        "country": "DE", "currency": "USD", "paper": "a4",
    },
    "limits": {"owner": "{project_id}", "period": "day", "limit": "9", "enforcement": "hard"},
    "limit": {"limit": "$9,000", "enforcement": "hard"},
    "rates": {"owner": "{project_id}", "requests_per_minute": "120"},
    "settings_rename": {"name": "Mine"},
    "settings_idempotency": {"idempotency_enabled": "1"},
    "settings_delete": {"confirmation": "Acme"},
    "project_new": {"name": "Mine"},
    "project_rename": {"name": "Mine"},
    "project_origins": {"allowed_origins": "https://app.example.com"},
    "project_archive": {"confirmation": "Default"},
    "team_invite": {"email": "new@example.com", "role": "viewer"},
    "member_role": {"role": "billing"},
    "member_remove": {"confirmation": "{member_email}"},
    "sso_domain_add": {"name": "other.example"},
    "sso_roles": {"role_claim": "groups", "role_map": "", "default_role": "viewer"},
    "sso_enforce": {"is_enforced": "1"},
    "webhook_new": ENDPOINT,
    "webhook_update": ENDPOINT,
    "webhook_switch": {"is_enabled": "0"},
    "webhook_delete": {"confirmation": "1.1.1.1"},
}  # fmt: skip
"""What changes something when it is sent; a name in braces is an id of the organization's."""
LACK_MORE = {
    "billing_code": "a code",
    "billing_request_invoice": "an operator with an address",
    "scim_heir": "SCIM",
    "settings_delete": "a settled account",
    "sso_oidc": "a provider",
    "sso_saml": "a provider",
}
"""Forms that the roles who may send them are refused for another reason."""


def address_of(name: str, ids: dict[str, str]) -> str:
    """Return a section's address with these ids."""
    return reverse(f"console:{name}", kwargs={each: ids[each] for each in PARAMETERS[name]})
