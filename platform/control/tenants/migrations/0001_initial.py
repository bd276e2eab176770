import control.tenants.models
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='User',
            fields=[
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('id', models.CharField(default=control.tenants.models.new_user_id, max_length=64, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254, unique=True)),
                ('name', models.CharField(blank=True, max_length=100)),
                ('is_active', models.BooleanField(default=True)),
                ('operator_role', models.CharField(blank=True, choices=[('viewer', 'Viewer'), ('support', 'Support'), ('catalog', 'Catalog'), ('finance', 'Finance'), ('owner', 'Owner')], max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('erased_at', models.DateTimeField(blank=True, null=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'db_table': 'tenants_user',
                'constraints': [models.CheckConstraint(condition=models.Q(('email', django.db.models.functions.text.Lower('email'))), name='email_is_lower_case'), models.CheckConstraint(condition=models.Q(('operator_role__in', ['', 'viewer', 'support', 'catalog', 'finance', 'owner'])), name='operator_role_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Operator',
            fields=[
            ],
            options={
                'proxy': True,
                'indexes': [],
                'constraints': [],
            },
            bases=('tenants.user',),
        ),
        migrations.CreateModel(
            name='OperatorInvitation',
            fields=[
                ('id', models.CharField(default=control.tenants.models.new_invitation_id, max_length=64, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254)),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('support', 'Support'), ('catalog', 'Catalog'), ('finance', 'Finance'), ('owner', 'Owner')], max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('invited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'tenants_operator_invitation',
                'constraints': [models.UniqueConstraint(condition=models.Q(('accepted_at__isnull', True), ('revoked_at__isnull', True)), fields=('email',), name='open_operator_invitation_is_unique'), models.CheckConstraint(condition=models.Q(('role__in', ['viewer', 'support', 'catalog', 'finance', 'owner'])), name='operator_invitation_role_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Organization',
            fields=[
                ('id', models.CharField(default=control.tenants.models.new_organization_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('status', models.CharField(choices=[('active', 'Active'), ('suspended', 'Suspended'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('billing_mode', models.CharField(choices=[('prepaid', 'Prepaid'), ('postpaid', 'Postpaid')], default='prepaid', max_length=16)),
                ('spend_limit_nanos', models.BigIntegerField(blank=True, null=True)),
                ('weight', models.PositiveIntegerField(default=1, help_text='Share of a busy pool.')),
                ('cache_salt_id', models.CharField(default=control.tenants.models.new_cache_salt_id, max_length=64)),
                ('takes_idempotency_keys', models.BooleanField(default=False, help_text='Whether answers are kept for a day, to be given again.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'tenants_organization',
                'constraints': [models.CheckConstraint(condition=models.Q(('status__in', ['active', 'suspended', 'deleted'])), name='organization_status_is_known'), models.CheckConstraint(condition=models.Q(('billing_mode__in', ['prepaid', 'postpaid'])), name='billing_mode_is_known'), models.CheckConstraint(condition=models.Q(('spend_limit_nanos__isnull', True), ('spend_limit_nanos__gte', 0), _connector='OR'), name='organization_limit_not_negative'), models.CheckConstraint(condition=models.Q(('weight__gte', 1)), name='weight_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.CharField(default=control.tenants.models.new_project_id, max_length=64, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='tenants.organization')),
                ('name', models.CharField(max_length=100)),
                ('spend_limit_nanos', models.BigIntegerField(blank=True, null=True)),
                ('allowed_origins', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, help_text="Whose pages may call with the project's keys, such as https://app.example.com.", size=None)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('archived_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'tenants_project',
                'constraints': [models.UniqueConstraint(condition=models.Q(('archived_at__isnull', True)), fields=('organization', 'name'), name='project_name_is_unique'), models.CheckConstraint(condition=models.Q(('spend_limit_nanos__isnull', True), ('spend_limit_nanos__gte', 0), _connector='OR'), name='project_limit_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.CharField(default=control.tenants.models.new_membership_id, max_length=64, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='memberships', to='tenants.organization')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('billing', 'Billing'), ('developer', 'Developer'), ('viewer', 'Viewer')], max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'tenants_membership',
                'constraints': [models.UniqueConstraint(fields=('organization', 'user'), name='member_is_unique'), models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'admin', 'billing', 'developer', 'viewer'])), name='role_is_known')],
            },
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.CharField(default=control.tenants.models.new_invitation_id, max_length=64, primary_key=True, serialize=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='invitations', to='tenants.organization')),
                ('email', models.EmailField(max_length=254)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('billing', 'Billing'), ('developer', 'Developer'), ('viewer', 'Viewer')], max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('invited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'tenants_invitation',
                'constraints': [models.UniqueConstraint(condition=models.Q(('accepted_at__isnull', True), ('revoked_at__isnull', True)), fields=('organization', 'email'), name='open_invitation_is_unique'), models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'admin', 'billing', 'developer', 'viewer'])), name='invitation_role_is_known')],
            },
        ),
    ]
