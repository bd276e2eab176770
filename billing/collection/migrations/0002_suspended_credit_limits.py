from django.db import migrations

SUSPEND = """
UPDATE credit_budget AS budget SET is_credit_limit_suspended = true, limit_nanos = funded_nanos
FROM collection_case WHERE collection_case.organization_id = budget.organization_id
    AND collection_case.limited_at IS NOT NULL AND budget.kind = 'balance'
"""


class Migration(migrations.Migration):
    dependencies = [
        ('collection', '0001_initial'),
        ('credit', '0003_credit_limit'),
    ]

    operations = [
        migrations.RunSQL(SUSPEND, migrations.RunSQL.noop),
    ]
