"""POST requests to the management API that carried an `Idempotency-Key`."""

from django.db import models
from django.utils import timezone

DIGEST_CHARACTERS = 64


class IdempotentRequest(models.Model):
    """The request of one idempotency key of a caller, kept for a day.

    `seats` are the caller's organizations and roles at that time. `status` is None while the
    request is in progress. `sealed` is the body of its response, which can't be read without the
    idempotency key (`control.api.idempotency`).
    """

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
