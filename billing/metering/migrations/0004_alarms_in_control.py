from django.db import migrations


class Migration(migrations.Migration):
    """Leaves the model of metering_tally to control.alarms; the table stays as it is."""

    dependencies = [
        ('alarms', '0001_initial'),
        ('metering', '0003_resent_usage'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.DeleteModel(name='Tally')],
        ),
    ]
