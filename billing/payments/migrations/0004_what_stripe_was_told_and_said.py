"""A customer's name as Stripe was told it, and Stripe's words where it refused a payment."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0003_a_look_goes_on")]

    operations = [
        migrations.AddField("stripecustomer", "name", models.CharField(blank=True, max_length=200)),
        migrations.AddField(
            "stripepayment", "stripe_words", models.CharField(blank=True, max_length=500)
        ),
    ]
