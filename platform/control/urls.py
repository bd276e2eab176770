"""The addresses of control: console, accounts, admin, management API, and the internal API, which
`control.listeners` keeps off the public listener."""

from allauth.account.views import signup
from django.conf import settings
from django.contrib import admin
from django.db import transaction
from django.urls import URLPattern, URLResolver, include, path

handler404 = "control.failures.not_found"
handler500 = "control.failures.server_error"

urlpatterns: list[URLPattern | URLResolver] = [
    path("internal/", include("control.urls_internal")),
    # A sign-up and its mail are one transaction: nobody has an account and waits for a mail.
    path("accounts/signup/", transaction.atomic(signup), name="account_signup"),
    path("accounts/", include("allauth.urls")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("control.api.urls")),
    *(path("api/v1/", include(module)) for module in settings.API_URLS),
    *(path("", include(module)) for module in settings.PUBLIC_URLS),
    path("", include(settings.CONSOLE_URLS)),
]
