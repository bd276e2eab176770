import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='StoredEmail',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('message_id', models.CharField(max_length=200, unique=True)),
                ('sent_to', models.CharField(max_length=320)),
                ('sender', models.CharField(max_length=320)),
                ('subject', models.CharField(max_length=500)),
                ('text', models.TextField(blank=True)),
                ('html', models.TextField(blank=True)),
                ('source', models.BinaryField()),
                ('received_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'mail_stored_email',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['received_at'], name='letter_by_time')],
            },
        ),
    ]
