"""An organization's single sign-on: identity provider, domains, role mapping and SCIM.

Only owners set up the provider, since it could sign anybody in as an owner. Admins verify domains
and map roles below an owner's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.contrib import messages
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from control.audit.models import AuditEvent
from control.audit.pseudonyms import NameResolver
from control.errors import Conflict, InvalidValue, NotPermitted
from control.forms import VersionedForm
from control.mail.services import absolute
from control.organizations import selectors as tenants
from control.organizations.models import Membership
from control.permissions import Permission, can
from control.sso import saml, selectors
from control.sso.connections import (
    create_oidc_connection,
    create_saml_connection,
    create_scim_token,
    disable_scim,
    enforce,
    remove_provider,
    set_role_mapping,
    set_transfer_target,
    stop_enforcing,
    unlink_identity,
)
from control.sso.domains import add_domain, remove_domain, verify_domain
from control.sso.models import SsoConnection, SsoDomain
from web.console.base import PageContext, console_page
from web.console.forms import apply_or_form_error, save_edit, status_of
from web.console.sso_forms import DomainForm, OidcForm, RolesForm, SamlForm, ScimTransferForm

PEOPLE_SHOWN = 50


@dataclass(frozen=True, slots=True)
class AffectedMember:
    """A member who would have to sign in by SSO if it is enforced, and whether they ever did."""

    membership: Membership
    has_come: bool


@dataclass(frozen=True, slots=True)
class LogRow:
    """An audit event, the person it concerns, and its reason."""

    deed: AuditEvent
    who: str
    reason: str


@console_page("team")
def sso(page: PageContext) -> HttpResponse:
    """Show the settings of single sign-on."""
    return render_sso(page)


@sensitive_variables()
@require_POST
@console_page("team")
def sso_oidc(page: PageContext) -> HttpResponse:
    """Set up an OpenID provider."""
    form = OidcForm(page.request.POST)
    return saved(
        page, form,
        gettext("Your OpenID Connect provider is set up. Sign in with it once to test it."),
        "oidc",
        lambda: create_oidc_connection(
            actor=page.actor, organization=page.organization, **form.cleaned_data
        ),
        present=lambda: OidcForm.of(selectors.connection(page.organization)),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_saml(page: PageContext) -> HttpResponse:
    """Set up a SAML provider."""
    form = SamlForm(page.request.POST)
    return saved(
        page, form,
        gettext("Your SAML provider is set up. Sign in with it once to test it."),
        "saml",
        lambda: create_saml_connection(
            actor=page.actor, organization=page.organization, **form.cleaned_data
        ),
        present=lambda: SamlForm.of(selectors.connection(page.organization)),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_remove(page: PageContext) -> HttpResponse:
    """Remove the provider."""
    return done(
        page, gettext("The provider is removed. Nobody can sign in with it anymore."),
        lambda: remove_provider(actor=page.actor, organization=page.organization),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_domain_add(page: PageContext) -> HttpResponse:
    """Add a domain to verify."""
    form = DomainForm(page.request.POST)
    return saved(
        page, form,
        gettext("The domain is added. Add the TXT record to your DNS, then check it."),
        "domain",
        lambda: add_domain(
            actor=page.actor, organization=page.organization, **form.cleaned_data
        ),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_domain_verify(page: PageContext, domain_id: str) -> HttpResponse:
    """Verify a domain by its TXT record."""
    return done(
        page, gettext("The domain is verified."),
        lambda: verify_domain(
            actor=page.actor, organization=page.organization, domain_id=domain_id
        ),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_domain_remove(page: PageContext, domain_id: str) -> HttpResponse:
    """Remove a domain."""
    return done(
        page, gettext("The domain is removed."),
        lambda: remove_domain(
            actor=page.actor, organization=page.organization, domain_id=domain_id
        ),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_roles(page: PageContext) -> HttpResponse:
    """Set the role mapping."""
    form = RolesForm(page.request.POST)
    return saved(
        page, form,
        gettext(
            "Roles are saved. They apply to members from SCIM now, and to others at their next"
            " sign-in."
        ),
        "roles",
        lambda: set_role_mapping(
            actor=page.actor, organization=page.organization, **form.cleaned_data
        ),
        present=lambda: RolesForm.of(selectors.connection(page.organization)),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_enforce(page: PageContext) -> HttpResponse:
    """Enforce SSO, or make it optional."""
    if page.request.POST.get("is_enforced") == "1":
        words = gettext("SSO is enforced. Email addresses of your domains must sign in with it.")
        return done(
            page, words,
            lambda: enforce(actor=page.actor, organization=page.organization),
        )  # fmt: skip
    return done(
        page, gettext("SSO is optional again."),
        lambda: stop_enforcing(actor=page.actor, organization=page.organization),
    )  # fmt: skip


@require_POST
@console_page("team")
def sso_forget(page: PageContext, member_id: str) -> HttpResponse:
    """Unlink a member's identity at the provider."""
    membership = tenants.member(page.organization, member_id)
    words = gettext("%(email)s is unlinked from the provider until the next sign-in.")
    return done(
        page, words % {"email": membership.user.email},
        lambda: unlink_identity(
            actor=page.actor, organization=page.organization, user=membership.user
        ),
    )  # fmt: skip


@never_cache
@sensitive_variables()
@require_POST
@console_page("team")
def scim_token(page: PageContext) -> HttpResponse:
    """Create a SCIM token and show it once."""
    token = create_scim_token(actor=page.actor, organization=page.organization)
    context = {"token": token, "scim_url": absolute("/scim/v2")}
    return page.render("console/scim_token.html", context, status=201)


@require_POST
@console_page("team")
def scim_end(page: PageContext) -> HttpResponse:
    """Revoke the SCIM token."""
    return done(
        page, gettext("The SCIM token is revoked."),
        lambda: disable_scim(actor=page.actor, organization=page.organization),
    )  # fmt: skip


@require_POST
@console_page("team")
def scim_heir(page: PageContext) -> HttpResponse:
    """Set the transfer target of suspended people's API keys."""
    heirs = transfer_targets(tenants.members(page.organization))
    form = ScimTransferForm(page.request.POST, heirs=heirs)

    def act() -> None:
        member_id = form.cleaned_data["heir"]
        target = tenants.member(page.organization, member_id) if member_id else None
        set_transfer_target(actor=page.actor, organization=page.organization, heir=target)

    return saved(
        page, form, gettext("Saved."), "heir", act,
        present=lambda: ScimTransferForm.of(selectors.scim_token(page.organization), heirs),
    )  # fmt: skip


def saved(
    page: PageContext,
    form: Form,
    words: str,
    name: str,
    act: Callable[[], object],
    *,
    present: Callable[[], VersionedForm] | None = None,
) -> HttpResponse:
    """Call `act` for a valid form, or show the form again with its errors. An edit is compared
    with the present form first."""
    require_manager(page)
    if isinstance(form, VersionedForm) and present:
        takes_seconds = name in ("oidc", "saml")  # the provider's documents are fetched
        is_saved = save_edit(form, page.organization.id, present, act, takes_seconds=takes_seconds)
    else:
        is_saved = form.is_valid() and apply_or_form_error(form, act)
    if is_saved:
        messages.success(page.request, words)
        return redirect(page.url("sso"))
    return render_sso(page, name, form)


def done(page: PageContext, words: str, act: Callable[[], object]) -> HttpResponse:
    """Call `act`, show a message for the result, and go back to the page."""
    require_manager(page)
    try:
        act()
    except (Conflict, InvalidValue) as error:
        messages.error(page.request, error.message)
    else:
        messages.success(page.request, words)
    return redirect(page.url("sso"))


def render_sso(page: PageContext, name: str = "", form: Form | None = None) -> HttpResponse:
    """Return the page, with a form as it was submitted."""
    require_manager(page)
    organization = page.organization
    connection = selectors.connection(organization)
    domains = list(selectors.domains(organization))
    token, memberships = selectors.scim_token(organization), list(tenants.members(organization))
    forms: dict[str, Form] = {
        "oidc": OidcForm.of(connection),
        "saml": SamlForm.of(connection),
        "domain": DomainForm(),
        "roles": RolesForm.of(connection),
        "heir": ScimTransferForm.of(token, transfer_targets(memberships)),
    }
    if form is not None:
        forms[name] = form
    context = {
        "connection": connection,
        "domains": domains,
        "is_owner": page.may(Permission.OWNERS_WRITE),
        "forms": forms,
        "asked": name,
        "callback_url": absolute(f"/sso/{organization.id}/callback"),
        "acs_url": saml.acs_url(organization.id),
        "entity_id": saml.entity_id(organization.id),
        "scim": token,
        "scim_url": absolute("/scim/v2"),
        "log": _log(selectors.last_events(organization)),
        **_dry_run(page, connection, domains, memberships),
    }
    return page.render("console/sso.html", context, status_of(form))


def _dry_run(
    page: PageContext,
    connection: SsoConnection,
    domains: list[SsoDomain],
    memberships: list[Membership],
) -> dict[str, object]:
    """Return the members whom enforcing SSO would affect, and the others."""
    names = {domain.name for domain in domains if domain.verified_at}
    if not connection.is_set_up or not names:
        return {"may_be_enforced": False}
    sso_user_ids = selectors.users_who_came(page.organization)
    inside = [each for each in memberships if selectors.domain_of(each.user.email) in names]
    concerned = [
        AffectedMember(each, each.user_id in sso_user_ids)
        for each in inside
        if not each.user.operator_role
    ]
    return {
        "may_be_enforced": connection.is_tried,
        "concerned": concerned[:PEOPLE_SHOWN],
        "concerned_count": len(concerned),
        "others_count": max(len(selectors.people_of(names)) - len(concerned), 0),
        "outside": [each for each in memberships if each not in inside][:PEOPLE_SHOWN],
        "names": sorted(names),
    }


def _log(events: list[AuditEvent]) -> list[LogRow]:
    names = NameResolver(events)
    rows = []
    for event in events:
        details = names.details(event)
        who = details.get("email") or names.actor(event)
        rows.append(LogRow(event, who, details.get("reason", "")))
    return rows


def transfer_targets(memberships: Iterable[Membership]) -> list[Membership]:
    """Return the members to whom keys may be transferred."""
    return [each for each in memberships if can(each.role, Permission.API_KEYS_WRITE)]


def require_manager(page: PageContext) -> None:
    """Raise NotPermitted if the member may not manage members."""
    if not page.may(Permission.MEMBERS_WRITE):
        raise NotPermitted(gettext("Only owners and admins can set up how people sign in."))
