"""The addresses of control: console, accounts, admin, management API, and the internal API, which
`control.listeners` keeps off the public listener."""

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

handler404 = "control.failures.not_found"
handler500 = "control.failures.server_error"

urlpatterns: list[URLPattern | URLResolver] = [
    path("internal/", include("control.urls_internal")),
    path("accounts/", include("allauth.urls")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("control.api.urls")),
    *(path("api/v1/", include(module)) for module in settings.API_URLS),
    path("", include(settings.CONSOLE_URLS)),
]
