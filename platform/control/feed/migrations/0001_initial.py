import django.utils.timezone
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='CompactionHorizon',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'feed_compaction_horizon',
            },
        ),
        migrations.CreateModel(
            name='DatabaseIdentity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seed', models.UUIDField(default=uuid.uuid4)),
            ],
            options={
                'db_table': 'feed_database_identity',
            },
        ),
        migrations.CreateModel(
            name='PublishedChange',
            fields=[
                ('version', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=32)),
                ('record_id', models.CharField(max_length=64)),
                ('record', models.TextField(null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'feed_published_change',
                'indexes': [models.Index(fields=['kind', 'record_id', '-version'], name='change_newest_of_record')],
            },
        ),
        migrations.RunSQL(
            "INSERT INTO feed_database_identity (seed) VALUES (gen_random_uuid())", migrations.RunSQL.noop
        ),
    ]
