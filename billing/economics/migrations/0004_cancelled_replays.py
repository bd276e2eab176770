from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('economics', '0003_judged_hours'),
    ]

    operations = [
        migrations.AddField(
            model_name='replayrun',
            name='cancelled_at',
            field=models.DateTimeField(null=True),
        ),
    ]
