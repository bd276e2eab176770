"""Budgets by the week and the day beside the months: their rows know the length of their period.

The functions are those of sql/authorization.sql as it is now, whatever version was there.
"""

import pathlib

from django.db import migrations, models

AUTHORIZATION = pathlib.Path(__file__).parent.parent / "sql" / "authorization.sql"
DROP_FUNCTIONS = """
DROP FUNCTION IF EXISTS credit_held, credit_lock, credit_lock_charged, credit_open_budgets,
    credit_available, credit_grant_size, credit_grant_leases, credit_take_back, credit_charge,
    credit_recall_overdrawn, credit_fund, credit_set_limits, credit_void_lease, credit_see_overrun,
    credit_forget_leases, credit_recall;
"""
KINDS = [
    ("balance", "Balance"), ("organization", "Organization"), ("project", "Project"),
    ("key", "API key"),
]
PERIODS = [
    ("lifetime", "Without end"), ("month", "Monthly"), ("week", "Weekly"), ("day", "Daily"),
]
BALANCES = "UPDATE credit_budget SET period = 'lifetime' WHERE kind = 'balance'"


class Migration(migrations.Migration):
    dependencies = [
        ("credit", "0003_open_leases_by_budget"),
        ("budgets", "0001_initial"),
    ]

    operations = [
        migrations.AlterField(
            "budget", "kind", models.CharField(choices=KINDS, max_length=16)
        ),
        migrations.AddField(
            "budget", "period", models.CharField(choices=PERIODS, db_default="month", max_length=16)
        ),
        migrations.RunSQL(BALANCES, migrations.RunSQL.noop),
        migrations.AddIndex(
            "budget",
            models.Index(
                condition=models.Q(("period__in", ["week", "day"])), fields=["organization_id"],
                name="budget_fine_by_organization",
            ),
        ),
        migrations.AddIndex(
            "budget",
            models.Index(
                condition=models.Q(("kind", "balance")), fields=["organization_id"],
                name="budget_balance_by_organization",
            ),
        ),
        migrations.AddIndex(
            "budget",
            models.Index(
                condition=models.Q(("limit_nanos__isnull", False), models.Q(("period", "lifetime"), _negated=True)),
                fields=["starts_at"], name="budget_limited_by_period",
            ),
        ),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=models.Q(("kind", "balance"), ("period", "lifetime"))
                | models.Q(models.Q(("kind", "balance"), _negated=True), ("period__in", ["month", "week", "day"])),
                name="budget_period_is_known",
            ),
        ),
        migrations.RunSQL(DROP_FUNCTIONS + AUTHORIZATION.read_text(), migrations.RunSQL.noop),
    ]
