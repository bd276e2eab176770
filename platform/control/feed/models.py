"""The published changes. Superseded ones are compacted; the newest of each record stays, so that
the log always holds the whole state."""

import uuid

from django.db import models
from django.utils import timezone


class PublishedChange(models.Model):
    """A numbered change: the JSON of a contract record, or None to delete it."""

    version = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=32)
    record_id = models.CharField(max_length=64)
    record = models.TextField(null=True)  # noqa: DJ001 - None deletes, "" is no record
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "feed_published_change"
        indexes = [
            models.Index(fields=["kind", "record_id", "-version"], name="change_newest_of_record")
        ]

    def __str__(self) -> str:
        return f"{self.version}: {self.kind} {self.record_id}"


class CompactionHorizon(models.Model):
    """One row: changes up to `version` may be gone; readers behind it get a snapshot."""

    version = models.BigIntegerField(default=0)

    class Meta:
        db_table = "feed_compaction_horizon"

    def __str__(self) -> str:
        return str(self.version)


class DatabaseIdentity(models.Model):
    """One row, made with the database, that distinguishes it from others
    (`database_identity.py`)."""

    seed = models.UUIDField(default=uuid.uuid4)

    class Meta:
        db_table = "feed_database_identity"

    def __str__(self) -> str:
        return str(self.seed)
