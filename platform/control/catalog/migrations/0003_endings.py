import control.catalog.external_servers
import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0002_weights_digest'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='variant',
            name='precision_is_unique',
        ),
        migrations.AddField(
            model_name='deployment',
            name='ended_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='variant',
            name='archived_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='deployment',
            name='external_urls',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200, validators=[control.catalog.external_servers.check_server_url]), blank=True, default=list, size=None),
        ),
        migrations.AddConstraint(
            model_name='variant',
            constraint=models.UniqueConstraint(condition=models.Q(('archived_at__isnull', True)), fields=('model', 'precision'), name='live_precision_is_unique', violation_error_message='The model has a variant of this precision.'),
        ),
    ]
