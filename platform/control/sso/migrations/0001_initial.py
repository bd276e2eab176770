import control.sso.models
import django.db.models.deletion
import django.db.models.functions.text
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
            name='ScimToken',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='scim', serialize=False, to='organizations.organization')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('last_four', models.CharField(max_length=4)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('heir', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='organizations.membership')),
            ],
            options={
                'db_table': 'sso_scim_token',
            },
        ),
        migrations.CreateModel(
            name='ScimUser',
            fields=[
                ('id', models.CharField(default=control.sso.models.new_scim_user_id, max_length=64, primary_key=True, serialize=False)),
                ('user_name', models.CharField(max_length=254)),
                ('external_id', models.CharField(blank=True, max_length=255)),
                ('given_name', models.CharField(blank=True, max_length=100)),
                ('family_name', models.CharField(blank=True, max_length=100)),
                ('is_active', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='organizations.organization')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'sso_scim_user',
            },
        ),
        migrations.CreateModel(
            name='ScimGroup',
            fields=[
                ('id', models.CharField(default=control.sso.models.new_scim_group_id, max_length=64, primary_key=True, serialize=False)),
                ('display_name', models.CharField(max_length=200)),
                ('external_id', models.CharField(blank=True, max_length=255)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='organizations.organization')),
                ('members', models.ManyToManyField(db_table='sso_scim_member', related_name='groups', to='sso.scimuser')),
            ],
            options={
                'db_table': 'sso_scim_group',
            },
        ),
        migrations.CreateModel(
            name='SsoConnection',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='sso', serialize=False, to='organizations.organization')),
                ('protocol', models.CharField(blank=True, choices=[('oidc', 'OpenID Connect'), ('saml', 'SAML 2.0')], max_length=8)),
                ('issuer', models.CharField(blank=True, max_length=2000)),
                ('client_id', models.CharField(blank=True, max_length=255)),
                ('sealed_secret', models.TextField(blank=True)),
                ('metadata_url', models.CharField(blank=True, max_length=2000)),
                ('provider', models.JSONField(default=dict)),
                ('role_claim', models.CharField(blank=True, max_length=200)),
                ('role_map', models.JSONField(default=dict)),
                ('default_role', models.CharField(blank=True, choices=[('owner', 'Owner'), ('admin', 'Admin'), ('billing', 'Billing'), ('developer', 'Developer'), ('viewer', 'Viewer')], default='developer', max_length=16)),
                ('is_enforced', models.BooleanField(default=False)),
                ('is_tried', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'sso_connection',
                'constraints': [models.CheckConstraint(condition=models.Q(('protocol__in', ['', 'oidc', 'saml'])), name='sso_protocol_is_known'), models.CheckConstraint(condition=models.Q(('default_role__in', ['', 'admin', 'billing', 'developer', 'viewer'])), name='sso_default_role_is_grantable'), models.CheckConstraint(condition=models.Q(models.Q(('protocol', ''), _negated=True), ('is_enforced', False), _connector='OR'), name='sso_enforced_has_protocol')],
            },
        ),
        migrations.CreateModel(
            name='SsoDomain',
            fields=[
                ('id', models.CharField(default=control.sso.models.new_domain_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=253)),
                ('token', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('verified_at', models.DateTimeField(null=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='sso_domains', to='organizations.organization')),
            ],
            options={
                'db_table': 'sso_domain',
            },
        ),
        migrations.CreateModel(
            name='SsoIdentity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_used_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='organizations.organization')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'sso_identity',
            },
        ),
        migrations.AddConstraint(
            model_name='scimuser',
            constraint=models.UniqueConstraint(fields=('organization', 'user'), name='scim_user_is_one'),
        ),
        migrations.AddConstraint(
            model_name='scimuser',
            constraint=models.UniqueConstraint(models.F('organization'), django.db.models.functions.text.Lower('user_name'), name='user_name_is_one'),
        ),
        migrations.AddConstraint(
            model_name='scimgroup',
            constraint=models.UniqueConstraint(fields=('organization', 'display_name'), name='group_name_is_one'),
        ),
        migrations.AddConstraint(
            model_name='ssodomain',
            constraint=models.UniqueConstraint(condition=models.Q(('verified_at__isnull', False)), fields=('name',), name='verified_domain_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='ssodomain',
            constraint=models.UniqueConstraint(fields=('organization', 'name'), name='domain_is_named_once'),
        ),
        migrations.AddConstraint(
            model_name='ssoidentity',
            constraint=models.UniqueConstraint(fields=('organization', 'subject'), name='subject_is_one'),
        ),
        migrations.AddConstraint(
            model_name='ssoidentity',
            constraint=models.UniqueConstraint(fields=('organization', 'user'), name='identity_is_one'),
        ),
    ]
