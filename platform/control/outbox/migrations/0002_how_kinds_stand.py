"""How each kind stands is read from what is not delivered, not from all that ever was."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("outbox", "0001_initial")]

    operations = [
        migrations.AddIndex(
            "message",
            models.Index(
                fields=["kind", "started_at"],
                name="message_undelivered",
                condition=Q(delivered_at__isnull=True),
            ),
        ),
    ]
