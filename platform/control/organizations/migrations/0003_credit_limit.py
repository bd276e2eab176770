from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('organizations', '0002_allowed_regions'),
    ]

    operations = [
        migrations.AddField(
            model_name='organization',
            name='credit_limit_nanos',
            field=models.BigIntegerField(db_default=1000000000000, default=1000000000000),
        ),
        migrations.AddConstraint(
            model_name='organization',
            constraint=models.CheckConstraint(condition=models.Q(('credit_limit_nanos__gte', 0)), name='credit_limit_not_negative'),
        ),
    ]
