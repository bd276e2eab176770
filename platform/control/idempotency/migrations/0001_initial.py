import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='IdempotencyQuota',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='tenants.organization')),
                ('claim_count', models.PositiveIntegerField(default=0)),
                ('kept_bytes', models.PositiveBigIntegerField(default=0)),
            ],
            options={
                'db_table': 'idempotency_shelf',
            },
        ),
        migrations.CreateModel(
            name='IdempotencyClaim',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('shelf', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='claims', to='idempotency.idempotencyquota')),
                ('key_digest', models.CharField(max_length=64)),
                ('request_digest', models.CharField(max_length=64)),
                ('event_id', models.UUIDField(unique=True)),
                ('gateway_id', models.CharField(max_length=64)),
                ('claimed_at', models.DateTimeField(db_index=True)),
                ('kept_at', models.DateTimeField(null=True)),
                ('is_completed', models.BooleanField(default=False)),
                ('sealed', models.BinaryField(null=True)),
                ('sealed_bytes', models.PositiveIntegerField(default=0)),
            ],
            options={
                'db_table': 'idempotency_claim',
                'constraints': [models.UniqueConstraint(fields=('shelf', 'key_digest'), name='one_claim_of_a_key'), models.CheckConstraint(condition=models.Q(('sealed__isnull', True), ('kept_at__isnull', False), _connector='OR'), name='an_answer_is_kept_once_it_is_there'), models.CheckConstraint(condition=models.Q(('is_completed', False), ('kept_at__isnull', False), _connector='OR'), name='what_completed_was_kept')],
            },
        ),
        migrations.CreateModel(
            name='EarlyClaimEnding',
            fields=[
                ('event_id', models.UUIDField(primary_key=True, serialize=False)),
                ('ended_at', models.DateTimeField(db_index=True)),
            ],
            options={
                'db_table': 'idempotency_early_ending',
            },
        ),
    ]
