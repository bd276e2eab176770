import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0003_endings'),
    ]

    operations = [
        migrations.CreateModel(
            name='Fleet',
            fields=[
                ('id', models.CharField(help_text='PENSTOCK_FLEET_ID of its processes. It never changes.', max_length=64, primary_key=True, serialize=False, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\\Z', "A fleet's ID has letters, digits, _ and -.")], verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('region', models.CharField(blank=True, default='', help_text='Where requests are processed, such as eu-west. Empty if it is not known.', max_length=64, validators=[django.core.validators.RegexValidator('^[a-z0-9-]+\\Z', 'A region has lower-case letters, digits and -.')])),
                ('generation', models.PositiveBigIntegerField(default=0)),
                ('instance_id', models.CharField(blank=True, default='', max_length=64)),
                ('credential_name', models.CharField(blank=True, default='', max_length=40)),
                ('heard_at', models.DateTimeField(blank=True, null=True, verbose_name='last heard')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'catalog_fleet',
                'ordering': ['name'],
            },
        ),
        migrations.RunSQL(
            "INSERT INTO catalog_fleet (id, name, region, generation, instance_id, credential_name, created_at)"
            " VALUES ('default', 'Default', '', 0, '', '', now())",
            migrations.RunSQL.noop,
        ),
        migrations.AddField(
            model_name='deployment',
            name='fleet',
            field=models.ForeignKey(db_default='default', default='default', on_delete=django.db.models.deletion.PROTECT, related_name='deployments', to='catalog.fleet'),
        ),
    ]
