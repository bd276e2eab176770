"""Which credential owns which gateway, which gateways are alive, and the idempotency keys of
inference requests with their stored responses."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from control.db.models import ID_MAX, append_only
from control.organizations.models import Organization

GATEWAY_ID_MAX = 64
NAME_MAX = 40
DIGEST_CHARACTERS = 64


class GatewayOwner(models.Model):
    """The name of the credential that a gateway first showed. Never changes: a gateway is created
    with its journal, and no other credential may speak for it."""

    gateway_id = models.CharField(primary_key=True, max_length=GATEWAY_ID_MAX)
    name = models.CharField(max_length=NAME_MAX)
    named_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "dataplane_gateway_owner"
        triggers = append_only("named")

    def __str__(self) -> str:
        return f"{self.gateway_id} of {self.name}"


class GatewayHeartbeat(models.Model):
    """When a gateway was last heard of."""

    gateway_id = models.CharField(primary_key=True, max_length=GATEWAY_ID_MAX)
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "dataplane_gateway_heartbeat"

    def __str__(self) -> str:
        return self.gateway_id


class IdempotencyQuota(models.Model):
    """What an organization has claimed and kept. Whoever changes its claims locks this row."""

    organization = models.OneToOneField(
        Organization, models.CASCADE, primary_key=True, related_name="+"
    )
    claim_count = models.PositiveIntegerField(default=0)
    kept_bytes = models.PositiveBigIntegerField(default=0)

    class Meta:
        db_table = "dataplane_idempotency_quota"

    def __str__(self) -> str:
        return self.organization_id


class IdempotencyClaim(models.Model):
    """The one request of a key. Once its answer is kept it may complete, and once it is known to be
    completed the key is its own; `sealed` is None where the answer was too long, or was erased."""

    shelf = models.ForeignKey(IdempotencyQuota, models.CASCADE, related_name="claims")
    key_digest = models.CharField(max_length=DIGEST_CHARACTERS)
    request_digest = models.CharField(max_length=DIGEST_CHARACTERS)
    event_id = models.UUIDField(unique=True)
    gateway_id = models.CharField(max_length=ID_MAX)
    claimed_at = models.DateTimeField(db_index=True)
    kept_at = models.DateTimeField(null=True)
    is_completed = models.BooleanField(default=False)
    sealed = models.BinaryField(null=True)
    sealed_bytes = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "dataplane_idempotency_claim"
        constraints = [
            models.UniqueConstraint(fields=["shelf", "key_digest"], name="one_claim_of_a_key"),
            models.CheckConstraint(
                condition=Q(sealed__isnull=True) | Q(kept_at__isnull=False),
                name="an_answer_is_kept_once_it_is_there",
            ),
            models.CheckConstraint(
                condition=Q(is_completed=False) | Q(kept_at__isnull=False),
                name="what_completed_was_kept",
            ),
        ]

    def __str__(self) -> str:
        return str(self.event_id)


class EarlyClaimEnding(models.Model):
    """A request that ended before its claim came, which must then claim nothing."""

    event_id = models.UUIDField(primary_key=True)
    ended_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "dataplane_early_claim_ending"

    def __str__(self) -> str:
        return str(self.event_id)
