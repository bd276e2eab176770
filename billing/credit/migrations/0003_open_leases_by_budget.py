"""Of leases, only open ones are looked for by their budget, and those have an index of their own."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("credit", "0002_authorization")]

    operations = [
        migrations.AlterField(
            model_name="lease",
            name="budget",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="leases",
                to="credit.budget",
            ),
        ),
    ]
