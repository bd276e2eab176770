from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('credit', '0004_remaining'),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='creditgrant',
            index=models.Index(condition=models.Q(('reversed_at__isnull', True)), fields=['expires_at'], include=('organization_id',), name='grant_by_expiry'),
        ),
        AddIndexConcurrently(
            model_name='creditgrant',
            index=models.Index(condition=models.Q(('has_remaining', True), ('reversed_at__isnull', True)), fields=['organization_id'], name='grant_with_remaining'),
        ),
        AddIndexConcurrently(
            model_name='creditgrant',
            index=models.Index(condition=models.Q(('expired_nanos__gt', 0), ('reversed_at__isnull', True)), fields=['organization_id', 'expires_at'], name='grant_expired'),
        ),
    ]
