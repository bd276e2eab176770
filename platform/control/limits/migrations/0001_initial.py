import control.limits.models
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('catalog', '0001_initial'),
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='LimitTier',
            fields=[
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('id', models.CharField(default=control.limits.models.new_limit_tier_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100, unique=True)),
                ('paid_min_nanos', models.BigIntegerField(unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'limits_tier',
                'ordering': ['paid_min_nanos'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='tier_limits_positive'), models.CheckConstraint(condition=models.Q(('paid_min_nanos__gte', 0)), name='tier_paid_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='TierModelLimits',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('tier', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='model_limits', to='limits.limittier')),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.model')),
            ],
            options={
                'verbose_name_plural': 'tier model limits',
                'db_table': 'limits_tier_model',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='tier_model_limits_positive'), models.UniqueConstraint(fields=('tier', 'model'), name='tier_model_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='OrganizationLimits',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='own_limits', to='tenants.organization')),
                ('model', models.ForeignKey(blank=True, help_text='Empty: all models together.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.model')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'verbose_name': 'limits of an organization',
                'verbose_name_plural': 'limits of organizations',
                'db_table': 'limits_organization',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='organization_limits_positive'), models.UniqueConstraint(fields=('organization', 'model'), name='organization_limits_unique', nulls_distinct=False)],
            },
        ),
        migrations.CreateModel(
            name='OwnLimits',
            fields=[
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('limited_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organization')),
            ],
            options={
                'verbose_name_plural': 'own limits',
                'db_table': 'limits_own',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='own_limits_positive')],
            },
        ),
        migrations.CreateModel(
            name='Standing',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='limit_standing', serialize=False, to='tenants.organization')),
                ('paid_nanos', models.BigIntegerField(default=0)),
                ('tier', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='standings', to='limits.limittier')),
                ('since', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'limits_standing',
            },
        ),
        migrations.CreateModel(
            name='GatewayHeartbeat',
            fields=[
                ('gateway_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('seen_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'limits_live_gateway',
            },
        ),
    ]
