"""The state on disk: all of a version or nothing of it, and never a crash."""

from pathlib import Path

import msgspec
import pytest

from serving.contract.feed import RECORD_OF_KIND
from serving.contract.records import PriceRecord
from serving.feed.follower import BEGINNING, FeedPosition
from serving.feed.state_store import StateFile
from tests.fixtures import catalog
from tests.fixtures.state import Told, batches, page, read, read_as_if_killed, write

A = catalog.tenant("a")
KEY: Told = ("api_key", "key_a", A.key)
PRICE: Told = ("price", "price_a", catalog.price(price_id="price_a"))


def projects(count: int) -> list[Told]:
    return [
        ("project", f"proj_{n}", msgspec.structs.replace(A.project, project_id=f"proj_{n}"))
        for n in range(count)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "feed.sqlite3"


def written(path: Path, *pages: msgspec.Struct, **options: object) -> StateFile:
    """Write pages into a file and leave it open."""
    file = StateFile(path, RECORD_OF_KIND)
    for told in pages:
        write(file, batches(told, **options))
    return file


def test_what_was_written_is_read_again_and_followed_on_from(path: Path) -> None:
    many = projects(500)
    change = page(8, ("project", "proj_7", None), PRICE, snapshot=False)
    written(path, page(7, KEY, *many), change).close()
    found = read(path)
    assert found.place == FeedPosition(8, "one")
    assert found.records == {
        told[:2]: told[2] for told in (KEY, PRICE, *many) if told[1] != "proj_7"
    }


def test_the_last_of_several_changes_of_one_record_stays(path: Path) -> None:
    again = page(2, ("price", "price_a", None), PRICE, KEY, ("api_key", "key_a", None))
    written(path, page(1), again).close()
    assert set(read(path).records) == {("price", "price_a")}


def test_nothing_is_known_of_a_file_that_is_not_there(path: Path) -> None:
    found = read(path)
    assert (found.records, found.place, found.is_whole) == ({}, BEGINNING, False)


def test_a_snapshot_takes_the_place_of_all_but_what_was_rejected(path: Path) -> None:
    bad = ("api_key", "key_a", {"key_id": "key_a"})
    written(path, page(1, KEY, *projects(2)), page(2, bad, PRICE)).close()
    assert set(read(path).records) == {("api_key", "key_a"), ("price", "price_a")}


def test_half_a_snapshot_changes_nothing(path: Path, tmp_path: Path) -> None:
    file = written(path, page(1, KEY, lineage="old"), page(9, *projects(500), cursor="more"))
    found = read_as_if_killed(path, tmp_path / "killed")
    assert (found.place, set(found.records)) == (FeedPosition(1, "old"), {("api_key", "key_a")})
    write(file, batches(page(9, PRICE), begins=False))
    file.close()
    found = read(path)
    assert (found.place, len(found.records)) == (FeedPosition(9, "one"), 501)


def test_a_snapshot_that_is_begun_again_leaves_nothing_of_the_first(path: Path) -> None:
    written(path, page(1), page(2, KEY, cursor="more"), page(3, PRICE)).close()
    assert set(read(path).records) == {("price", "price_a")}


@pytest.mark.parametrize("place", ["header", "middle", "all"])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(path: Path, place: str) -> None:
    written(path, page(1, *projects(2_000))).close()
    data = bytearray(path.read_bytes())
    cut = {"header": slice(0, 100), "middle": slice(4096, 40_960), "all": slice(0, len(data))}
    data[cut[place]] = b"\xa5" * len(data[cut[place]])
    path.write_bytes(data)
    found = read(path)
    assert (found.place, found.is_whole) == (BEGINNING, False)
    assert len(list(path.parent.glob("feed.sqlite3.damaged-*"))) == 1
    written(path, page(2, KEY)).close()
    assert set(read(path).records) == {("api_key", "key_a")}


def test_a_file_that_cannot_be_opened_is_as_none(path: Path) -> None:
    path.mkdir()
    assert not read(path).is_whole


@pytest.mark.parametrize("change", ["kind", "field", "type"])
def test_a_state_whose_writer_knew_other_records_is_not_followed_on(
    path: Path, change: str
) -> None:
    known = dict(RECORD_OF_KIND)
    if change == "kind":
        del known["fleet_size"]
    elif change == "field":
        without = [(name, int) for name in PriceRecord.__struct_fields__ if name != "tier"]
        known["price"] = msgspec.defstruct("PriceRecord", without)
    else:
        other = [(name, float) for name in PriceRecord.__struct_fields__]
        known["price"] = msgspec.defstruct("PriceRecord", other)
    file = StateFile(path, known)
    write(file, batches(page(3, KEY), kinds=known))
    file.close()
    found = read(path)
    assert (found.place, found.is_whole, found.is_partial) == (FeedPosition(0, "one"), True, False)
    assert set(found.records) == {("api_key", "key_a")}
    assert read(path, known).place == FeedPosition(3, "one")


def test_a_state_of_which_a_record_is_not_understood_any_more_is_partial(path: Path) -> None:
    kinds = RECORD_OF_KIND | {"price": RECORD_OF_KIND["project"]}
    file = StateFile(path, kinds)
    write(file, batches(page(3, KEY, ("price", "p", A.project)), kinds=kinds))
    file.close()
    found = read(path)
    assert (found.place, found.is_whole, found.is_partial) == (FeedPosition(0, "one"), True, True)
    assert set(found.records) == {("api_key", "key_a")}
