import control.api_keys.models
import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.CharField(default=control.api_keys.models.new_key_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('kind', models.CharField(choices=[('standard', 'Standard'), ('playground', 'Playground')], default='standard', max_length=16)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('pepper_id', models.CharField(blank=True, max_length=8)),
                ('prefix', models.CharField(max_length=16)),
                ('last_four', models.CharField(max_length=4)),
                ('form_token', models.CharField(blank=True, max_length=64, null=True)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), default=control.api_keys.models.default_scopes, size=None)),
                ('allowed_models', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, null=True, size=None)),
                ('allowed_networks', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64), blank=True, null=True, size=None)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('spend_limit_nanos', models.BigIntegerField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='organizations.organization')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='keys', to='organizations.project')),
            ],
            options={
                'verbose_name': 'API key',
                'db_table': 'api_keys_api_key',
            },
        ),
        migrations.CreateModel(
            name='PreviousSecret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('pepper_id', models.CharField(blank=True, max_length=8)),
                ('prefix', models.CharField(max_length=16)),
                ('last_four', models.CharField(max_length=4)),
                ('ends_at', models.DateTimeField()),
                ('key', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='old_secrets', to='api_keys.apikey')),
                ('made_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'api_keys_previous_secret',
            },
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=models.Index(fields=['organization', 'created_at'], name='key_by_organization'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.CheckConstraint(condition=models.Q(('scopes__len__gte', 1)), name='key_has_a_scope'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.CheckConstraint(condition=models.Q(('spend_limit_nanos__isnull', True), ('spend_limit_nanos__gte', 0), _connector='OR'), name='key_limit_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.UniqueConstraint(fields=('organization', 'form_token'), name='form_makes_one_key'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'playground'), ('revoked_at__isnull', True)), fields=('project', 'created_by'), name='playground_key_is_unique'),
        ),
    ]
