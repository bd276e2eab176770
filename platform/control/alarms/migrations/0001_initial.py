from django.db import migrations, models


class Migration(migrations.Migration):
    """Takes over the model of a table that the first migration of metering makes."""

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name='AlarmCount',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('organization_id', models.CharField(max_length=64)),
                        ('kind', models.CharField(max_length=40)),
                        ('day', models.DateField()),
                        ('count', models.BigIntegerField(default=0)),
                    ],
                    options={
                        'verbose_name': 'alarm count',
                        'db_table': 'metering_tally',
                        'constraints': [models.UniqueConstraint(fields=('organization_id', 'kind', 'day'), name='tally_is_unique')],
                    },
                ),
            ],
        ),
    ]
