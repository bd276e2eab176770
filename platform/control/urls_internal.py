"""What the data plane may call. The layers above name their modules in settings."""

from django.conf import settings
from django.urls import include, path

urlpatterns = [path("v1/", include(module)) for module in settings.INTERNAL_URLS]
