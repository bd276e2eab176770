"""POST requests to the management API that carried an `Idempotency-Key`."""

from django.db import models
from django.utils import timezone

DIGEST_CHARACTERS = 64


class IdempotentRequest(models.Model):
    """The one request of a caller's key, for a day. `seats` are the caller's roles at that time, by
    organization; `status` is None while the request is under way; `sealed` is the body of its
    answer, which nobody reads without the caller's key (`control.api.idempotency`)."""

    caller = models.CharField(max_length=64)
    key_digest = models.CharField(max_length=DIGEST_CHARACTERS)
    request_digest = models.CharField(max_length=DIGEST_CHARACTERS)
    seats = models.JSONField(default=list)
    status = models.PositiveSmallIntegerField(null=True)
    sealed = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        db_table = "api_idempotent_request"
        constraints = [
            models.UniqueConstraint(fields=["caller", "key_digest"], name="one_request_of_a_key")
        ]

    def __str__(self) -> str:
        return f"request {self.pk} of {self.caller}"
