"""The schedule that collection begins with; the operator changes it in the admin."""

from typing import Any

from django.db import migrations

SCHEDULE = ((0, "retry"), (3, "retry"), (5, "retry"), (7, "retry"), (10, "limit"), (14, "suspend"))


def add(apps: Any, schema_editor: Any) -> None:
    """Add the steps and the one row of settings, where there are none."""
    alias = schema_editor.connection.alias
    steps = apps.get_model("collection", "ScheduledStep").objects.using(alias)
    if not steps.exists():
        for days, kind in SCHEDULE:
            steps.create(days=days, kind=kind)
    apps.get_model("collection", "Settings").objects.using(alias).get_or_create(id=1)


class Migration(migrations.Migration):
    dependencies = [("collection", "0001_initial")]

    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
