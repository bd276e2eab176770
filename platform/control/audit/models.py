"""What was done, by whom, to what; written once, which the database itself holds."""

import pgtrigger
from django.db import models
from django.utils import timezone

ID_MAX = 64


class Deed(models.Model):
    """One deed. `organization_id` is empty for deeds that concern the whole platform; `details`
    holds names and figures, never secrets or content."""

    organization_id = models.CharField(max_length=ID_MAX, blank=True)
    actor_kind = models.CharField(max_length=16)
    actor_id = models.CharField(max_length=ID_MAX, blank=True)
    actor_name = models.CharField(max_length=254)
    action = models.CharField(max_length=64)
    target_kind = models.CharField(max_length=32)
    target_id = models.CharField(max_length=ID_MAX)
    details = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "audit_entry"
        verbose_name_plural = "deeds"
        ordering = ["-id"]
        indexes = [models.Index(fields=["organization_id", "-id"], name="audit_by_organization")]
        triggers = [
            pgtrigger.Protect(name="deed_stays", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.action} {self.target_id}"
