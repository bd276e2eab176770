"""Ids are found by whoever puts one into an address of the admin as it is."""

from django.contrib.admin.utils import unquote

from control.db.models import new_id


def test_the_admin_takes_no_part_of_an_id_for_a_quoted_character() -> None:
    ids = [new_id("key") for _ in range(5_000)]
    assert [unquote(each) for each in ids] == ids
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {len("key_") + 24}
