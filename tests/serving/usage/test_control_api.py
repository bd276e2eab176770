"""A restored database ends all leases at once; requests under way and their charges go on."""

from pathlib import Path

from serving.usage.control_api import DatabaseIdentityCheck
from tests.fixtures.balances import BALANCE, CENT, LIMIT, open_money
from tests.fixtures.fake_billing import FakeBilling
from tests.fixtures.waiting import eventually


def test_the_first_lineage_is_no_change() -> None:
    remembered: list[str] = []
    changes: list[str] = []
    lineage = DatabaseIdentityCheck("", remembered.append)
    lineage.on_change(lambda: changes.append(lineage.known))
    for heard in ("", "a", "a", "", "b", "b"):
        lineage.observe(heard)
    assert (remembered, changes, lineage.changes) == (["a", "b"], ["b"], 1)


async def test_another_lineage_ends_all_leases_and_new_ones_are_asked_for(tmp_path: Path) -> None:
    billing = FakeBilling()
    billing.limits = {BALANCE: 100 * CENT, LIMIT: 100 * CENT}
    backup = billing.back_up()
    async with open_money(tmp_path / "a", billing) as money:
        under_way = await money.hold(1_000, BALANCE, LIMIT)
        old = set(money.poll.leases)
        billing.restore(backup)
        await eventually(lambda: money.lineage.known == billing.lineage)
        assert not old & set(money.poll.leases)
        (await money.hold(1_000, BALANCE, LIMIT)).void()
        charges = under_way.charge(700)
        assert {charge.lease_id for charge in charges} == old
        money.poll.acknowledged(charges)
        assert money.lease_manager.held_nanos() == 0
        await money.poll.return_all()
    assert not old & {back.lease_id for back in billing.returns}
    async with open_money(tmp_path / "a", billing, polls=False) as again:
        assert again.lineage.known == billing.lineage
        assert again.poll.leases == {}


async def test_a_life_that_begins_after_the_restore_forgets_its_leases_too(tmp_path: Path) -> None:
    billing = FakeBilling()
    billing.limits = {BALANCE: 100 * CENT}
    async with open_money(tmp_path / "a", billing) as money:
        (await money.hold(1_000)).void()
        old = set(money.poll.leases)
    billing.restore(type(billing.books)())
    async with open_money(tmp_path / "a", billing) as money:
        assert set(money.poll.leases) == old
        await eventually(lambda: money.lineage.known == billing.lineage)
        assert money.poll.leases == {}
