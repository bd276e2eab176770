"""Models for embeddings, whose vectors have a length."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("catalog", "0002_hourly_cost")]

    operations = [
        migrations.AddField(
            "model",
            "task",
            models.CharField(
                choices=[("generate", "Text"), ("embed", "Embeddings")],
                default="generate",
                max_length=16,
            ),
        ),
        migrations.AddField(
            "variant",
            "dimensions",
            models.PositiveIntegerField(
                blank=True,
                help_text="Length of the vectors, of a model for embeddings.",
                null=True,
            ),
        ),
        migrations.AddConstraint(
            "variant",
            models.CheckConstraint(
                condition=Q(dimensions__isnull=True) | Q(dimensions__gte=1),
                name="dimensions_are_positive",
            ),
        ),
    ]
