import control.catalog.models
import django.contrib.postgres.fields
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='qualityreport',
            name='weights_digest',
            field=models.CharField(blank=True, db_default='', default='', max_length=64, validators=[django.core.validators.RegexValidator('^[0-9a-f]{64}\\Z', 'A digest is 64 hexadecimal digits (SHA-256).')]),
        ),
        migrations.AddField(
            model_name='variant',
            name='weights_digest',
            field=models.CharField(blank=True, db_default='', default='', help_text="SHA-256 of the weights' files. Leave it empty to take that of the first load; after that it never changes.", max_length=64, validators=[django.core.validators.RegexValidator('^[0-9a-f]{64}\\Z', 'A digest is 64 hexadecimal digits (SHA-256).')]),
        ),
        migrations.AlterField(
            model_name='deployment',
            name='engine_arguments',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200, validators=[control.catalog.models.check_engine_argument]), blank=True, default=list, size=None),
        ),
        migrations.AlterField(
            model_name='variant',
            name='engine_arguments',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200, validators=[control.catalog.models.check_engine_argument]), blank=True, default=list, size=None),
        ),
        migrations.AlterField(
            model_name='variant',
            name='weights',
            field=models.CharField(help_text="A folder on the fleet's host, a Hugging Face ID with its commit (owner/name@commit), an s3://, gs:// or az:// URL, or the model's name on an external server. It never changes.", max_length=200, validators=[control.catalog.models.check_weights_source]),
        ),
    ]
