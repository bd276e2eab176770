from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0004_fleets'),
    ]

    operations = [
        migrations.AddField(
            model_name='fleet',
            name='registered_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='registered'),
        ),
    ]
