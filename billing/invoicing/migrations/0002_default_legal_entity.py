"""Somebody has to be the seller: a legal entity that the operator completes in the admin."""

from typing import Any

from django.db import migrations


LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
    '<rect width="24" height="24" rx="5" fill="#3d43c2"/>'
    '<path d="M4 7h4.800l6 7.500H20v4h-7.200L6.900 11H4z" fill="#fff"/>'
    '<path d="M14.500 5v5.500" stroke="#fff" stroke-width="2.200" stroke-linecap="round"/></svg>'
)


def add_default(apps: Any, schema_editor: Any) -> None:
    """Add a legal entity where there is none."""
    alias = schema_editor.connection.alias
    entities = apps.get_model("invoicing", "LegalEntity").objects.using(alias)
    if not entities.exists():
        entities.create(name="Penstock", address="", country="US", logo_svg=LOGO, is_default=True)


class Migration(migrations.Migration):
    dependencies = [("invoicing", "0001_initial")]

    operations = [migrations.RunPython(add_default, migrations.RunPython.noop)]
