"""A customer's idempotency key names a wish of theirs alone, and modes never meet."""

from django.db import migrations, models
from django.db.models import Q

OPEN = ("created", "open", "requires_action", "processing")


class Migration(migrations.Migration):
    dependencies = [("payments", "0001_initial")]

    operations = [
        migrations.RemoveConstraint("stripepayment", "stripe_payment_is_made_once"),
        migrations.AddConstraint(
            "stripepayment",
            models.UniqueConstraint(
                fields=["organization_id", "mode", "purpose", "idempotency_key"],
                name="stripe_payment_is_made_once",
            ),
        ),
        migrations.RemoveConstraint("stripepayment", "stripe_payment_one_per_invoice"),
        migrations.AddConstraint(
            "stripepayment",
            models.UniqueConstraint(
                fields=["invoice_id", "mode"],
                condition=Q(purpose="invoice", status__in=OPEN),
                name="stripe_payment_one_per_invoice",
            ),
        ),
    ]
