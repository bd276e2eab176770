import control.limits.models
import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('catalog', '0001_initial'),
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageTier',
            fields=[
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('id', models.CharField(default=control.limits.models.new_usage_tier_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100, unique=True)),
                ('paid_min_nanos', models.BigIntegerField(unique=True)),
                ('service_tiers', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=20), blank=True, help_text='Which its organizations may use, one per line: priority, default, flex, batch. Empty: all.', null=True, size=None)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'limits_usage_tier',
                'ordering': ['paid_min_nanos'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='tier_limits_positive'), models.CheckConstraint(condition=models.Q(('paid_min_nanos__gte', 0)), name='tier_paid_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='OrganizationUsageTier',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='limit_standing', serialize=False, to='organizations.organization')),
                ('paid_nanos', models.BigIntegerField(default=0)),
                ('since', models.DateTimeField(default=django.utils.timezone.now)),
                ('tier', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='standings', to='limits.usagetier')),
            ],
            options={
                'db_table': 'limits_organization_usage_tier',
            },
        ),
        migrations.CreateModel(
            name='RateLimitOverride',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('model', models.ForeignKey(blank=True, help_text='Empty: all models together.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.model')),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='own_limits', to='organizations.organization')),
            ],
            options={
                'verbose_name': 'limits of an organization',
                'verbose_name_plural': 'limits of organizations',
                'db_table': 'limits_rate_limit_override',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='organization_limits_positive'), models.UniqueConstraint(fields=('organization', 'model'), name='organization_limits_unique', nulls_distinct=False)],
            },
        ),
        migrations.CreateModel(
            name='SelfImposedRateLimit',
            fields=[
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('limited_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.organization')),
            ],
            options={
                'verbose_name_plural': 'own limits',
                'db_table': 'limits_self_imposed_rate_limit',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='own_limits_positive')],
            },
        ),
        migrations.CreateModel(
            name='SpendingLimit',
            fields=[
                ('budget_id', models.CharField(db_collation='C', max_length=80, primary_key=True, serialize=False)),
                ('limited_id', models.CharField(max_length=64)),
                ('period', models.CharField(choices=[('month', 'Month'), ('week', 'Week'), ('day', 'Day')], max_length=8)),
                ('limit_nanos', models.BigIntegerField()),
                ('is_hard', models.BooleanField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='spend_limits', to='organizations.organization')),
            ],
            options={
                'db_table': 'limits_spending_limit',
                'constraints': [models.CheckConstraint(condition=models.Q(('limit_nanos__gte', 0)), name='spend_limit_not_negative'), models.CheckConstraint(condition=models.Q(('period__in', ['week', 'day']), models.Q(('is_hard', False), ('period', 'month')), _connector='OR'), name='hard_month_is_its_owners'), models.UniqueConstraint(fields=('limited_id', 'period'), name='spend_limit_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='UsageTierModelLimit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('requests_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('input_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('output_tokens_per_minute', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('concurrent_requests', control.limits.models.LimitField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000000)])),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.model')),
                ('tier', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='model_limits', to='limits.usagetier')),
            ],
            options={
                'verbose_name_plural': 'tier model limits',
                'db_table': 'limits_usage_tier_model_limit',
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('requests_per_minute__isnull', True), models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('input_tokens_per_minute__isnull', True), models.Q(('input_tokens_per_minute__gte', 1), ('input_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('output_tokens_per_minute__isnull', True), models.Q(('output_tokens_per_minute__gte', 1), ('output_tokens_per_minute__lte', 1000000000)), _connector='OR'), models.Q(('concurrent_requests__isnull', True), models.Q(('concurrent_requests__gte', 1), ('concurrent_requests__lte', 1000000000)), _connector='OR')), name='tier_model_limits_positive'), models.UniqueConstraint(fields=('tier', 'model'), name='tier_model_is_unique')],
            },
        ),
    ]
