"""Operators have roles. Who could do everything owns the platform; other staff may look."""

import control.tenants.models
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

FORWARD = """
UPDATE tenants_user SET operator_role = CASE WHEN is_superuser THEN 'owner' ELSE 'viewer' END
WHERE is_staff
"""


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('tenants', '0003_allowed_origins'),
    ]

    operations = [
        migrations.CreateModel(
            name='OperatorInvitation',
            fields=[
                ('id', models.CharField(default=control.tenants.models.new_invitation_id, max_length=64, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254)),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('support', 'Support'), ('catalog', 'Catalog'), ('finance', 'Finance'), ('owner', 'Owner')], max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'tenants_operator_invitation',
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
        migrations.AddField(
            model_name='user',
            name='operator_role',
            field=models.CharField(blank=True, choices=[('viewer', 'Viewer'), ('support', 'Support'), ('catalog', 'Catalog'), ('finance', 'Finance'), ('owner', 'Owner')], max_length=16),
        ),
        migrations.RunSQL(FORWARD, migrations.RunSQL.noop),
        migrations.RemoveField(
            model_name='user',
            name='is_staff',
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.CheckConstraint(condition=models.Q(('operator_role__in', ['', 'viewer', 'support', 'catalog', 'finance', 'owner'])), name='operator_role_is_known'),
        ),
        migrations.AddField(
            model_name='operatorinvitation',
            name='invited_by',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='operatorinvitation',
            constraint=models.UniqueConstraint(condition=models.Q(('accepted_at__isnull', True), ('revoked_at__isnull', True)), fields=('email',), name='open_operator_invitation_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='operatorinvitation',
            constraint=models.CheckConstraint(condition=models.Q(('role__in', ['viewer', 'support', 'catalog', 'finance', 'owner'])), name='operator_invitation_role_is_known'),
        ),
    ]
