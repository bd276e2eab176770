"""The rules of structure that `make check` holds migrations to."""

import ast

import pytest

from tests import gates

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("migrations.CreateModel('Label', [])", ""),
        ("migrations.AddField('key', 'note', models.TextField(null=True))", ""),
        ("migrations.AddField(model_name='key', name='n', field=f(db_default=1))", ""),
        ("migrations.AddField('key', 'note', models.TextField(default='x'))", "db_default"),
        ("migrations.AddField(model_name='key', name='n', field=f())", "db_default"),
        ("migrations.AddIndex('key', index)", "AddIndexConcurrently"),
        ("AddIndexConcurrently('key', index)", ""),
        ("migrations.RenameField('key', 'a', 'b')", "a new column"),
    ],
)
def test_a_migration_stops_no_running_service(operation: str, wanted: str) -> None:
    (call,) = (each.value for each in ast.parse(operation).body)
    assert wanted in gates._danger(call)
    assert bool(gates._danger(call)) == bool(wanted)
