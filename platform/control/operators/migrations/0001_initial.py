import control.operators.models
import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Operator',
            fields=[
            ],
            options={
                'proxy': True,
                'indexes': [],
                'constraints': [],
            },
            bases=('accounts.user',),
        ),
        migrations.CreateModel(
            name='OperatorInvitation',
            fields=[
                ('id', models.CharField(default=control.operators.models.new_operator_invitation_id, max_length=64, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254)),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('support', 'Support'), ('catalog', 'Catalog'), ('finance', 'Finance'), ('owner', 'Owner')], max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('invited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'operators_invitation',
                'constraints': [models.UniqueConstraint(condition=models.Q(('accepted_at__isnull', True), ('revoked_at__isnull', True)), fields=('email',), name='open_operator_invitation_is_unique'), models.CheckConstraint(condition=models.Q(('role__in', ['viewer', 'support', 'catalog', 'finance', 'owner'])), name='operator_invitation_role_is_known')],
            },
        ),
        migrations.CreateModel(
            name='OperatorToken',
            fields=[
                ('id', models.CharField(default=control.operators.models.new_operator_token_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('permissions', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('platform:read', 'platform:read'), ('customers:write', 'customers:write'), ('catalog:write', 'catalog:write'), ('finance:write', 'finance:write'), ('operators:write', 'operators:write')], max_length=32), size=None)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('pepper_id', models.CharField(max_length=8)),
                ('prefix', models.CharField(max_length=16)),
                ('last_four', models.CharField(max_length=4)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField(blank=True, help_text='UTC. Empty: never.', null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='operator_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'operators_token',
                'constraints': [models.CheckConstraint(condition=models.Q(('permissions__len__gte', 1)), name='operator_token_has_a_permission')],
            },
        ),
    ]
