import django.contrib.postgres.fields
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='organization',
            name='allowed_regions',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64, validators=[django.core.validators.RegexValidator('^[a-z0-9-]+\\Z', 'A region has lower-case letters, digits and -.')]), blank=True, db_default=[], default=list, help_text='Regions of fleets that may process its requests. Empty: any.', size=None),
        ),
    ]
