"""Every database is told from every other."""

import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('publish', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Lineage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seed', models.UUIDField(default=uuid.uuid4)),
            ],
            options={
                'db_table': 'publish_lineage',
            },
        ),
        migrations.RunSQL(
            "INSERT INTO publish_lineage (seed) VALUES (gen_random_uuid())", migrations.RunSQL.noop
        ),
    ]
