"""The account pages, which allauth serves, in the console's frame: it shows the organization of a
person's oldest membership."""

from dataclasses import dataclass, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy as _

from control.accounts.models import User
from control.organizations import selectors as tenants
from web.console.base import Choice, PageContext, get_page_context

PREFIX = "/accounts/"
IN_FRAME = "console/account.html"
WITHOUT_FRAME = "allauth/layouts/door.html"
PAGES = {
    "mfa_index": _("Sign-in methods"),
    "usersessions_list": _("Sessions"),
    "account_change_password": _("Password"),
    "account_email": _("Email addresses"),
    "console:personal_data": _("Your data"),
}


@dataclass(frozen=True, slots=True)
class AccountPage(PageContext):
    """A page that belongs to no organization."""

    @property
    def nav(self) -> list[Choice]:
        """The navigation's entries, none of them current."""
        # `slots=True` creates the class anew, so `super()` without arguments would fail.
        entries = PageContext.nav.__get__(self)
        return [replace(entry, is_current=False) for entry in entries]


def account(request: HttpRequest) -> dict[str, object]:
    """Return the frame of account pages and its content (a context processor)."""
    if not request.path.startswith(PREFIX):
        return {}
    page = SimpleLazyObject(lambda: _page(request))

    def frame() -> str:
        """Choose the base template. Called only by templates, as it loads the page context."""
        return IN_FRAME if page else WITHOUT_FRAME

    return {
        "page": page,
        "account_frame": frame,
        "account_tabs": [
            Choice(str(label), reverse(name), request.path.startswith(reverse(name)))
            for name, label in PAGES.items()
        ],
        "passkeys_work": passkeys_work(),
    }


def passkeys_work() -> bool:
    """Return whether browsers allow passkeys: only for a host name, not for an IP address."""
    try:
        ip_address(urlsplit(settings.CONFIG.console_url).hostname or "")
    except ValueError:
        return True
    return False


def _page(request: HttpRequest) -> AccountPage | None:
    if not isinstance(request.user, User):
        return None
    membership = tenants.memberships(request.user).first()
    if membership is None:
        return None
    page = get_page_context(request, membership.organization_id, "overview")
    return AccountPage(**{name: getattr(page, name) for name in PageContext.__slots__})
