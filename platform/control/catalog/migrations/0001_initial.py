import control.catalog.models
import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Model',
            fields=[
                ('id', models.CharField(default=control.catalog.models.new_model_id, max_length=64, primary_key=True, serialize=False)),
                ('public_id', models.CharField(max_length=100, unique=True)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField(blank=True)),
                ('task', models.CharField(choices=[('generate', 'Text'), ('embed', 'Embeddings')], default='generate', max_length=16)),
                ('organization_ids', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_.:-]+\\Z', 'An id has letters, digits and _ . : - only.')]), blank=True, null=True, size=None)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'catalog_model',
                'ordering': ['public_id'],
            },
        ),
        migrations.CreateModel(
            name='Variant',
            fields=[
                ('id', models.CharField(default=control.catalog.models.new_variant_id, max_length=64, primary_key=True, serialize=False)),
                ('precision', models.CharField(help_text='bf16, fp8, int8, int4, …', max_length=16)),
                ('weights', models.CharField(help_text='A local folder or a Hugging Face ID.', max_length=200)),
                ('engine_arguments', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, size=None)),
                ('capabilities', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64), blank=True, default=list, size=None)),
                ('context_tokens', models.PositiveIntegerField(validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_max', models.PositiveIntegerField(validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('vocabulary_size', models.PositiveIntegerField(validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('dimensions', models.PositiveIntegerField(blank=True, help_text='Length of the vectors of an embedding model.', null=True, validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('parameter_count', models.PositiveBigIntegerField(blank=True, null=True)),
                ('size_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('published_at', models.DateTimeField(blank=True, null=True)),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='variants', to='catalog.model')),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='quantized', to='catalog.variant')),
            ],
            options={
                'db_table': 'catalog_variant',
                'ordering': ['created_at'],
            },
        ),
        migrations.CreateModel(
            name='QualityReport',
            fields=[
                ('id', models.CharField(default=control.catalog.models.new_report_id, max_length=64, primary_key=True, serialize=False)),
                ('document', models.JSONField()),
                ('question_count', models.PositiveIntegerField(blank=True, null=True)),
                ('accuracy', models.FloatField(blank=True, null=True)),
                ('accuracy_low', models.FloatField(blank=True, null=True)),
                ('accuracy_high', models.FloatField(blank=True, null=True)),
                ('perplexity', models.FloatField(blank=True, null=True)),
                ('size_bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('tokens_per_second', models.FloatField(blank=True, null=True)),
                ('skills', models.JSONField(blank=True, default=list)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('variant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='quality_reports', to='catalog.variant')),
            ],
            options={
                'db_table': 'catalog_quality_report',
                'ordering': ['-created_at'],
            },
        ),
        migrations.AddField(
            model_name='model',
            name='default_variant',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='default_of', to='catalog.variant'),
        ),
        migrations.CreateModel(
            name='Deployment',
            fields=[
                ('id', models.CharField(default=control.catalog.models.new_deployment_id, max_length=64, primary_key=True, serialize=False)),
                ('engine', models.CharField(choices=[('vllm', 'vLLM'), ('simulated', 'Simulated'), ('external', 'External')], default='vllm', max_length=16)),
                ('replicas_min', models.PositiveIntegerField(default=0, validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('replicas_max', models.PositiveIntegerField(default=1, validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('slots', models.PositiveIntegerField(default=32, help_text='Concurrent sequences per replica.', validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('reserved_share', models.FloatField(default=0.1, help_text='Share of all slots kept free for each tier whose clients wait, while in use.')),
                ('engine_arguments', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, size=None)),
                ('external_urls', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, size=None)),
                ('connect_seconds', models.FloatField(default=2.0, validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(10000000.0)])),
                ('first_byte_seconds', models.FloatField(default=60.0, validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(10000000.0)])),
                ('gap_seconds', models.FloatField(default=30.0, validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(10000000.0)])),
                ('total_seconds', models.FloatField(default=600.0, validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(10000000.0)])),
                ('queue_seconds', models.FloatField(default=30.0, validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(10000000.0)])),
                ('wake_seconds', models.FloatField(default=0.0, help_text='How long to wait for a starting replica if none is ready. 0: refuse at once.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(10000000.0)])),
                ('sleep_after_seconds', models.FloatField(default=0.0, help_text='After so long without a request, all replicas stop until there is one. 0: never.', validators=[django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(10000000.0)])),
                ('hourly_cost_nanos', models.BigIntegerField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('dedicated_to', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='deployments', to='organizations.organization')),
                ('variant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='deployments', to='catalog.variant')),
            ],
            options={
                'db_table': 'catalog_deployment',
                'ordering': ['created_at'],
            },
        ),
        migrations.CreateModel(
            name='ReplicaFailure',
            fields=[
                ('replica_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('deployment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='failures', to='catalog.deployment')),
                ('reason', models.CharField(max_length=500)),
                ('started_at', models.DateTimeField()),
                ('noticed_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'catalog_replica_failure',
                'ordering': ['-noticed_at'],
            },
        ),
        migrations.AddConstraint(
            model_name='variant',
            constraint=models.UniqueConstraint(fields=('model', 'precision'), name='precision_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='variant',
            constraint=models.CheckConstraint(condition=models.Q(('output_tokens_max__gte', 1), ('output_tokens_max__lte', models.F('context_tokens'))), name='output_fits_context'),
        ),
        migrations.AddConstraint(
            model_name='variant',
            constraint=models.CheckConstraint(condition=models.Q(('dimensions__isnull', True), ('dimensions__gte', 1), _connector='OR'), name='dimensions_are_positive'),
        ),
        migrations.AddConstraint(
            model_name='qualityreport',
            constraint=models.CheckConstraint(condition=models.Q(('accuracy__isnull', True), models.Q(('accuracy__gte', 0), ('accuracy__lte', 1)), _connector='OR'), name='accuracy_is_a_share'),
        ),
        migrations.AddConstraint(
            model_name='deployment',
            constraint=models.CheckConstraint(condition=models.Q(('replicas_max__gte', models.F('replicas_min'))), name='replicas_max_not_below_min'),
        ),
        migrations.AddConstraint(
            model_name='deployment',
            constraint=models.CheckConstraint(condition=models.Q(('slots__gte', 1)), name='slots_are_positive'),
        ),
        migrations.AddConstraint(
            model_name='deployment',
            constraint=models.CheckConstraint(condition=models.Q(('reserved_share__gte', 0), ('reserved_share__lte', 1)), name='reserved_share_is_a_part'),
        ),
        migrations.AddConstraint(
            model_name='deployment',
            constraint=models.CheckConstraint(condition=models.Q(('sleep_after_seconds', 0), models.Q(('sleep_after_seconds__gt', 0), ('wake_seconds__gt', 0), models.Q(('engine', 'external'), _negated=True)), _connector='OR'), name='sleeps_only_where_it_is_waited_for', violation_error_message='Only a deployment that requests wait for (wake_seconds) and whose replicas are ours may sleep.'),
        ),
        migrations.AddConstraint(
            model_name='deployment',
            constraint=models.CheckConstraint(condition=models.Q(('hourly_cost_nanos__isnull', True), ('hourly_cost_nanos__gte', 0), _connector='OR'), name='hourly_cost_not_negative'),
        ),
    ]
