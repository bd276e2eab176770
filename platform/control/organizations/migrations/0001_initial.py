import control.organizations.models
import django.contrib.postgres.fields
import django.core.validators
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
            name='Organization',
            fields=[
                ('id', models.CharField(default=control.organizations.models.new_organization_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('status', models.CharField(choices=[('active', 'Active'), ('suspended', 'Suspended'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('suspended_reason', models.CharField(blank=True, max_length=200)),
                ('billing_mode', models.CharField(choices=[('prepaid', 'Prepaid'), ('postpaid', 'Postpaid')], default='prepaid', max_length=16)),
                ('spend_limit_nanos', models.BigIntegerField(blank=True, null=True)),
                ('weight', models.PositiveIntegerField(default=1, help_text='Share of a busy pool.', validators=[django.core.validators.MaxValueValidator(1000000000)])),
                ('cache_salt_id', models.CharField(default=control.organizations.models.new_cache_salt_id, max_length=64)),
                ('idempotency_enabled', models.BooleanField(default=False, help_text='Keep responses for a day, to answer repeated requests.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'organizations_organization',
                'constraints': [models.CheckConstraint(condition=models.Q(('status__in', ['active', 'suspended', 'deleted'])), name='organization_status_is_known'), models.CheckConstraint(condition=models.Q(('billing_mode__in', ['prepaid', 'postpaid'])), name='billing_mode_is_known'), models.CheckConstraint(condition=models.Q(('spend_limit_nanos__isnull', True), ('spend_limit_nanos__gte', 0), _connector='OR'), name='organization_limit_not_negative'), models.CheckConstraint(condition=models.Q(('weight__gte', 1)), name='weight_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.CharField(default=control.organizations.models.new_membership_id, max_length=64, primary_key=True, serialize=False)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('billing', 'Billing'), ('developer', 'Developer'), ('viewer', 'Viewer')], max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='memberships', to='organizations.organization')),
            ],
            options={
                'db_table': 'organizations_membership',
                'constraints': [models.UniqueConstraint(fields=('organization', 'user'), name='member_is_unique'), models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'admin', 'billing', 'developer', 'viewer'])), name='role_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.CharField(default=control.organizations.models.new_invitation_id, max_length=64, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('billing', 'Billing'), ('developer', 'Developer'), ('viewer', 'Viewer')], max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('invited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='invitations', to='organizations.organization')),
            ],
            options={
                'db_table': 'organizations_invitation',
                'constraints': [models.UniqueConstraint(condition=models.Q(('accepted_at__isnull', True), ('revoked_at__isnull', True)), fields=('organization', 'email'), name='open_invitation_is_unique'), models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'admin', 'billing', 'developer', 'viewer'])), name='invitation_role_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.CharField(default=control.organizations.models.new_project_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('spend_limit_nanos', models.BigIntegerField(blank=True, null=True)),
                ('allowed_origins', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, help_text="Origins whose pages may use the project's keys, such as https://app.example.com.", size=None)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('archived_at', models.DateTimeField(blank=True, null=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='organizations.organization')),
            ],
            options={
                'db_table': 'organizations_project',
                'constraints': [models.UniqueConstraint(condition=models.Q(('archived_at__isnull', True)), fields=('organization', 'name'), name='project_name_is_unique'), models.CheckConstraint(condition=models.Q(('spend_limit_nanos__isnull', True), ('spend_limit_nanos__gte', 0), _connector='OR'), name='project_limit_not_negative')],
            },
        ),
    ]
