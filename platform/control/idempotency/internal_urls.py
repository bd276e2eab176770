"""What of idempotency the data plane calls, under /internal/v1/."""

from django.urls import path

from control.idempotency.internal_api import answers, claims, endings

urlpatterns = [
    path("idempotency/claims", claims),
    path("idempotency/answers", answers),
    path("idempotency/endings", endings),
]
