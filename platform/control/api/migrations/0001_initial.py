import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='IdempotentRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('caller', models.CharField(max_length=64)),
                ('key_digest', models.CharField(max_length=64)),
                ('request_digest', models.CharField(max_length=64)),
                ('seats', models.JSONField(default=list)),
                ('status', models.PositiveSmallIntegerField(null=True)),
                ('sealed', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'api_idempotent_request',
                'constraints': [models.UniqueConstraint(fields=('caller', 'key_digest'), name='one_request_of_a_key')],
            },
        ),
    ]
