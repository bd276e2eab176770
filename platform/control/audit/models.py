"""The audit log and its hash chain: rows are written once, which the database itself enforces."""

import pgtrigger
from django.db import models
from django.utils import timezone

from control.db.models import append_only

ID_MAX = 64
TARGET_NAME_MAX = 300


class AuditEvent(models.Model):
    """One action. `organization_id` is empty for actions on the whole platform; `target_name`
    is what the target was called at the time; `details` holds names and figures, never secrets or
    content.

    People are stored by reference: `actor_name` is empty for them, and `target_name` and `details`
    hold their ids in place of email addresses (`control.audit.pseudonyms`). `address` and
    `request_id` are those of the HTTP request; they are empty for actions of the platform itself,
    and for older events.
    """

    organization_id = models.CharField(max_length=ID_MAX, blank=True)
    actor_kind = models.CharField(max_length=16)
    actor_id = models.CharField(max_length=ID_MAX, blank=True)
    actor_name = models.CharField(max_length=254, blank=True)
    action = models.CharField(max_length=64)
    target_kind = models.CharField(max_length=32)
    target_id = models.CharField(max_length=ID_MAX)
    target_name = models.CharField(max_length=TARGET_NAME_MAX, blank=True)
    details = models.JSONField(default=dict, blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.CharField(max_length=ID_MAX, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "audit_event"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["organization_id", "-id"], name="audit_by_organization"),
            models.Index(fields=["actor_id", "-id"], name="audit_by_actor"),
        ]
        triggers = [
            *append_only("deed"),
            pgtrigger.Trigger(
                name="deed_waits",
                operation=pgtrigger.Insert,
                when=pgtrigger.After,
                func="INSERT INTO audit_unchained_event (deed_id) VALUES (NEW.id); RETURN NULL;",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name or self.actor_id}: {self.action} {self.target_id}"


class UnchainedEvent(models.Model):
    """An audit event that is not in the chain yet; a trigger inserts the row together with the
    event."""

    deed = models.OneToOneField(AuditEvent, models.PROTECT, primary_key=True, db_constraint=False)

    class Meta:
        db_table = "audit_unchained_event"

    def __str__(self) -> str:
        return f"deed {self.deed_id}"


class ChainLink(models.Model):
    """An audit event's place in the chain. `digest` covers the event and the digest of the link
    before."""

    position = models.BigIntegerField(primary_key=True)
    deed = models.OneToOneField(AuditEvent, models.PROTECT, related_name="link")
    digest = models.BinaryField()

    class Meta:
        db_table = "audit_chain_link"
        triggers = append_only("link")

    def __str__(self) -> str:
        return f"link {self.position}"


class ChainVerification(models.Model):
    """One verification of the whole chain: the position and digest of its head, and the faults."""

    made_at = models.DateTimeField()
    position = models.BigIntegerField()
    digest = models.BinaryField()
    faults = models.JSONField(default=list, blank=True)

    class Meta:
        db_table = "audit_chain_verification"
        ordering = ["-id"]
        triggers = append_only("proof")

    def __str__(self) -> str:
        return f"{len(self.faults)} faults up to {self.position}"
