"""What of the change feed the data plane calls, under /internal/v1/."""

from django.urls import path

from control.publish.views import feed

urlpatterns = [path("feed", feed)]
