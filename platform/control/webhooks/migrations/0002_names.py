from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0001_initial")]

    operations = [
        migrations.RemoveConstraint("webhookendpoint", "endpoint_is_told_something"),
        migrations.RenameField("webhookendpoint", "kinds", "event_types"),
        migrations.AddConstraint(
            "webhookendpoint",
            models.CheckConstraint(
                condition=models.Q(("event_types__len__gte", 1)), name="endpoint_is_told_something"
            ),
        ),
        migrations.RemoveConstraint("webhookevent", "webhook_event_is_unique"),
        migrations.RenameField("webhookevent", "kind", "event_type"),
        migrations.AddConstraint(
            "webhookevent",
            models.UniqueConstraint(
                fields=("organization", "event_type", "key"), name="webhook_event_is_unique"
            ),
        ),
        migrations.RenameField("webhookattempt", "at", "created_at"),
    ]
