"""Charges lock their budgets once, and budgets by the week and the day are looked for afterwards;
returns are answered from what was locked.

The functions are those of sql/authorization.sql as it is now, whatever version was there.
"""

import pathlib

from django.db import migrations

AUTHORIZATION = pathlib.Path(__file__).parent.parent / "sql" / "authorization.sql"
DROP_FUNCTIONS = """
DROP FUNCTION IF EXISTS credit_lock_charged, credit_recall;
DROP FUNCTION credit_held, credit_lock, credit_open_budgets, credit_available, credit_grant_size,
    credit_grant_leases, credit_take_back, credit_charge, credit_recall_overdrawn, credit_fund,
    credit_set_limits, credit_void_lease, credit_see_overrun, credit_forget_leases;
"""


class Migration(migrations.Migration):
    dependencies = [("credit", "0004_periods")]

    operations = [
        migrations.RunSQL(DROP_FUNCTIONS + AUTHORIZATION.read_text(), migrations.RunSQL.noop),
    ]
