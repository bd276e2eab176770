"""Where Stripe's webhooks arrive."""

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from billing.payments import inbox
from billing.payments.waking import wake
from control.errors import InvalidValue


@method_decorator(csrf_exempt, name="dispatch")
class StripeWebhook(View):
    """One event: proved by its signature over the raw body, stored, answered with 200.

    400 for what is no event of ours; 503 where no signing secret is set. A repeat is 200 too.
    """

    http_method_names = ("post",)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Take an event in."""
        keys = settings.CONFIG.stripe
        if keys is None:
            return _answer(503, "stripe_not_configured")
        try:
            body = request.body
        except RequestDataTooBig:
            return _answer(413, "body_too_large")
        if len(body) > inbox.BODY_MAX:
            return _answer(413, "body_too_large")
        try:
            event = inbox.verify(body, request.headers.get("Stripe-Signature", ""), keys)
        except InvalidValue as refusal:
            return _answer(refusal.status, refusal.code)
        if inbox.receive(event, body, now=timezone.now()):
            wake()
        return _answer(200, None)


def _answer(status: int, code: str | None) -> HttpResponse:
    body: dict[str, object] = {"received": True} if code is None else {"error": {"code": code}}
    return JsonResponse(body, status=status)
