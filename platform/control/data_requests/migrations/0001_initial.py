import control.data_requests.models
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='DataSubjectRequest',
            fields=[
                ('id', models.CharField(default=control.data_requests.models.new_data_request_id, max_length=64, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('export', 'Export personal data'), ('erasure_dry_run', 'Erase (dry run)'), ('erasure', 'Erase personal data')], max_length=16)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('done', 'Done'), ('refused', 'Refused'), ('failed', 'Failed')], default='waiting', max_length=16, verbose_name='status')),
                ('percent', models.PositiveSmallIntegerField(default=0)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('busy_until', models.DateTimeField(blank=True, null=True)),
                ('told', models.JSONField(blank=True, default=list)),
                ('export', models.BinaryField(null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('asked_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'data_requests_request',
                'ordering': ['-created_at'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'waiting')), fields=('person', 'kind'), name='data_request_runs_once'), models.CheckConstraint(condition=models.Q(('kind__in', ['export', 'erasure_dry_run', 'erasure']), ('state__in', ['waiting', 'done', 'refused', 'failed'])), name='data_request_is_known')],
            },
        ),
    ]
