"""Amounts at the admin: typed in dollars, kept in nanos, shown with every digit."""

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from control.admin.fields import DollarsField, dollars, indented

pytestmark = pytest.mark.unit


class Row:
    spend_nanos: int | None = 150_000_000


@given(st.integers(0, 10**18))
def test_what_the_form_shows_is_read_as_the_same_amount(nanos: int) -> None:
    field = DollarsField()
    assert field.to_python(field.prepare_value(nanos)) == nanos
    assert not field.has_changed(nanos, field.prepare_value(nanos))


@pytest.mark.parametrize("typed", ["five", "-1", "1e3", "0.0000000001", "1,50"])
def test_what_is_no_amount_is_refused(typed: str) -> None:
    with pytest.raises(ValidationError):
        DollarsField().clean(typed)
    assert DollarsField().has_changed(0, typed)


def test_nothing_typed_is_no_amount() -> None:
    assert DollarsField(required=False).clean("") is None
    with pytest.raises(ValidationError):
        DollarsField().clean("")


def test_a_column_shows_dollars() -> None:
    row = Row()
    assert dollars("spend_nanos", "Spend")(None, row) == "$0.15"
    row.spend_nanos = None
    assert dollars("spend_nanos", "Spend")(None, row) == "-"


def test_json_is_shown_as_text() -> None:
    assert "&lt;b&gt;" in indented({"name": "<b>"})
