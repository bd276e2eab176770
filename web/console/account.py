"""The pages of one's own account, which allauth answers, in the console's frame: around them stands
the organization that a person is in longest."""

from dataclasses import dataclass, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from control.accounts.models import User
from control.organizations import selectors as tenants
from web.console.base import Choice, PageContext, get_page_context

PREFIX = "/accounts/"
IN_FRAME = "console/account.html"
AT_THE_DOOR = "allauth/layouts/door.html"
PAGES = {
    "mfa_index": "Ways to sign in",
    "usersessions_list": "Sessions",
    "account_change_password": "Password",
    "account_email": "Email addresses",
    "console:personal_data": "Your data",
}


@dataclass(frozen=True, slots=True)
class AccountPage(PageContext):
    """A page that belongs to no organization."""

    @property
    def nav(self) -> list[Choice]:
        """The rail's lines, none of them where we are."""
        # Of a class with slots, `super()` without arguments is another one.
        lines = PageContext.nav.__get__(self)
        return [replace(line, is_current=False) for line in lines]


def account(request: HttpRequest) -> dict[str, object]:
    """Context processor of account pages: their frame, and what it shows."""
    if not request.path.startswith(PREFIX):
        return {}
    page = SimpleLazyObject(lambda: _page(request))

    def frame() -> str:
        """Asked by templates alone: who only needs the rest opens no page."""
        return IN_FRAME if page else AT_THE_DOOR

    return {
        "page": page,
        "account_frame": frame,
        "account_tabs": [
            Choice(label, reverse(name), request.path.startswith(reverse(name)))
            for name, label in PAGES.items()
        ],
        "passkeys_work": passkeys_work(),
    }


def passkeys_work() -> bool:
    """Tell whether browsers keep passkeys for the console: they do for names, not for addresses."""
    try:
        ip_address(urlsplit(settings.CONFIG.console_url).hostname or "")
    except ValueError:
        return True
    return False


def _page(request: HttpRequest) -> AccountPage | None:
    if not isinstance(request.user, User):
        return None
    seat = tenants.memberships(request.user).first()
    if seat is None:
        return None
    page = get_page_context(request, seat.organization_id, "overview")
    return AccountPage(**{name: getattr(page, name) for name in PageContext.__slots__})
