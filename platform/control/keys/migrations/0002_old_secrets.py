import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='OldSecret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('pepper_id', models.CharField(blank=True, max_length=8)),
                ('prefix', models.CharField(max_length=16)),
                ('last_four', models.CharField(max_length=4)),
                ('made_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('ends_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'keys_old_secret',
            },
        ),
        migrations.RemoveField(
            model_name='apikey',
            name='mode',
        ),
        migrations.AddField(
            model_name='apikey',
            name='form_token',
            field=models.CharField(blank=True, max_length=64, null=True),
        ),
        migrations.AddField(
            model_name='apikey',
            name='pepper_id',
            field=models.CharField(blank=True, max_length=8),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.UniqueConstraint(fields=('organization', 'form_token'), name='form_makes_one_key'),
        ),
        migrations.AddField(
            model_name='oldsecret',
            name='key',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='old_secrets', to='keys.apikey'),
        ),
    ]
