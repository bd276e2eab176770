"""The mailbox of this platform: the emails that did not leave it."""

from django.db import models
from django.utils import timezone


class StoredEmail(models.Model):
    """One email as it would have been sent. It may hold live links, so only operators see it."""

    message_id = models.CharField(max_length=200, unique=True)
    sent_to = models.CharField(max_length=320)
    sender = models.CharField(max_length=320)
    subject = models.CharField(max_length=500)
    text = models.TextField(blank=True)
    html = models.TextField(blank=True)
    source = models.BinaryField()
    """The whole message as a mail server would have received it, with attachments."""
    received_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "mail_stored_email"
        ordering = ["-id"]
        indexes = [models.Index(fields=["received_at"], name="letter_by_time")]

    def __str__(self) -> str:
        return f"{self.subject} to {self.sent_to}"
