"""Owners of gateways by credential, the gateways that are alive, the idempotency keys of inference
requests with their stored responses, and the inference requests that failed."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from control.db.models import ID_MAX, append_only
from control.organizations.models import Organization
from serving.contract.failed_requests import MESSAGE_CHARACTERS_MAX, PARAM_CHARACTERS_MAX

GATEWAY_ID_MAX = 64
NAME_MAX = 40
DIGEST_CHARACTERS = 64


class GatewayOwner(models.Model):
    """The name of the credential that a gateway first presented. It never changes: a gateway is
    created with its journal, and no other credential may act for it."""

    gateway_id = models.CharField(primary_key=True, max_length=GATEWAY_ID_MAX)
    name = models.CharField(max_length=NAME_MAX)
    named_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "dataplane_gateway_owner"
        triggers = append_only("named")

    def __str__(self) -> str:
        return f"{self.gateway_id} of {self.name}"


class GatewayHeartbeat(models.Model):
    """The time of a gateway's last heartbeat."""

    gateway_id = models.CharField(primary_key=True, max_length=GATEWAY_ID_MAX)
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "dataplane_gateway_heartbeat"

    def __str__(self) -> str:
        return self.gateway_id


class IdempotencyQuota(models.Model):
    """An organization's number of claims and bytes of stored responses. Changes to its claims lock
    this row."""

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
    """The one request that holds a key. It may complete once its response is stored, and once it is
    known to be completed the key stays its own; `sealed` is None if the response was too long or
    was erased."""

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
    """A request that ended before its claim arrived; the claim must then fail."""

    event_id = models.UUIDField(primary_key=True)
    ended_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "dataplane_early_claim_ending"

    def __str__(self) -> str:
        return str(self.event_id)


class FailedRequest(models.Model):
    """An inference request that was refused or failed: what the client was told, without content.
    `variant_id` is empty if it did not name a model that its key may use."""

    request_id = models.UUIDField(primary_key=True)
    """Version 7, so that ids are in the order of time."""
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+")
    project_id = models.CharField(max_length=ID_MAX)
    key_id = models.CharField(max_length=ID_MAX)
    variant_id = models.CharField(max_length=ID_MAX, blank=True)
    received_at = models.DateTimeField(db_index=True)
    endpoint = models.CharField(max_length=PARAM_CHARACTERS_MAX)
    status = models.PositiveSmallIntegerField()
    code = models.CharField(max_length=PARAM_CHARACTERS_MAX, blank=True)
    param = models.CharField(max_length=PARAM_CHARACTERS_MAX, blank=True)
    message = models.CharField(max_length=MESSAGE_CHARACTERS_MAX)
    client_request_id = models.CharField(max_length=PARAM_CHARACTERS_MAX, blank=True)

    class Meta:
        db_table = "dataplane_failed_request"
        indexes = [
            models.Index(fields=["organization", "request_id"], name="failed_of_organization")
        ]

    def __str__(self) -> str:
        return str(self.request_id)
