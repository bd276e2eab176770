"""How the long tier judges what clients saw: what is waived, and what is booked wrongly."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.long.parts import PartFailed, changes
from tests.long.parts.changes import CHANGES
from tests.long.parts.days import DAYS, Day, Window, misbooked
from tests.long.parts.host import Host
from tests.long.parts.installation import Installation, Page
from tests.long.parts.load import Load, SentRequest

pytestmark = pytest.mark.unit
SERVED = SentRequest("bad-1", True, 10.0, 15.5, 200, True, "id-1", 22, "")
BROKEN = replace(SERVED, ended=11.0, is_whole=False, tokens=0, error="reset")


def window(*, is_kill: bool) -> Window:
    return Window(Day("a day", lambda _: None, is_kill=is_kill), 0.0, 10.5, 60.0, 40)


@pytest.mark.parametrize(
    ("is_kill", "request_seen", "is_waived"),
    [
        (True, BROKEN, True),
        (False, BROKEN, False),
        (True, replace(BROKEN, ended=20.0), False),
        (True, replace(BROKEN, began=15.0, ended=15.1), False),
    ],
)
def test_a_request_in_flight_at_a_killed_process_is_waived(
    is_kill: bool, request_seen: SentRequest, is_waived: bool
) -> None:
    assert window(is_kill=is_kill).is_waived(request_seen) == is_waived


@pytest.mark.parametrize(
    ("request_seen", "booked", "is_right"),
    [
        (SERVED, ["1", "id-1", "completed", "22"], True),
        (SERVED, ["2", "id-1", "completed", "44"], False),
        (SERVED, ["1", "id-2", "completed", "22"], False),
        (SERVED, ["1", "id-1", "engine_failed", "22"], False),
        (SERVED, ["1", "id-1", "completed", "21"], False),
        (SERVED, None, False),
        (BROKEN, None, True),
        (BROKEN, ["1", "id-1", "client_cancelled", "4"], True),
        (BROKEN, ["2", "id-1", "client_cancelled", "4"], False),
    ],
)
def test_what_a_client_saw_is_booked_once(
    request_seen: SentRequest, booked: list[str] | None, is_right: bool
) -> None:
    books = {} if booked is None else {request_seen.client_id: booked}
    assert (misbooked(request_seen, books) == "") == is_right


def test_the_load_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    began = '{"client_id": "bad-%d", "began": %d}\n'
    path.write_text(began % (1, 1) + began % (2, 5) + '{"client_id": "bad-3"')
    load = Load(path)
    assert load.in_flight() == 2
    ended = (
        '{"client_id": "bad-%d", "is_stream": false, "began": %d, "ended": 6, "status": 200,'
        ' "is_whole": true, "request_id": "x", "tokens": 2, "error": ""}\n'
    )
    path.write_text(began % (1, 1) + began % (2, 5) + began % (3, 6) + ended % (2, 5))
    assert not load.is_past(4.0, count=1)  # the first request began before and runs
    with path.open("a") as file:
        file.write(ended % (1, 1))
    assert load.is_past(4.0, count=1)
    assert load.in_flight() == 1


def test_a_command_must_be_on_the_page() -> None:
    page = Page("deploy")
    assert page.step("penstock upgrade", {"upgrade": "check"}) == "penstock check"
    with pytest.raises(PartFailed, match=r"deploy.md does not have the command 'penstock fly'"):
        page.step("penstock fly")


class RecordingHost(Host):
    """A host that writes down what would run on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ran: list[str] = []
        (self.root / "srv/dist").mkdir(parents=True)

    def run(self, script: str, **_: Any) -> str:
        self.ran.append(script)
        return "1"

    def install(self, script: str, **_: Any) -> None:
        self.ran.append(script)

    def read(self, path: str) -> str:
        url = "postgresql://penstock_app:word@127.0.0.1/penstock"
        return f'\\set app_password \'word\'\nDATABASE_URL="{url}"\nDATABASE_OWNER_URL="{url}"\n'

    def edit(self, path: str, changes: Any) -> None:
        pass


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    wheel = tmp_path / "penstock-0.3.1-py3-none-any.whl"
    wheel.write_text("")
    monkeypatch.setattr(changes, "build_later", lambda _: wheel)
    return Installation(RecordingHost(tmp_path))


def test_the_pages_have_all_commands_of_an_installation(
    installation: Installation, tmp_path: Path
) -> None:
    wheel = tmp_path / "penstock-0.3.0-py3-none-any.whl"
    wheel.write_text("")
    installation.install_packages(wheel)
    installation.set_up()
    host = installation.host
    assert isinstance(host, RecordingHost)
    assert any("systemctl start penstock.target" in script for script in host.ran)


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        (changes.restore_elsewhere, "penstock restore /backup/first"),
        (changes.promote_standby, "pg_ctlcluster 15 standby promote"),
        (changes.recover_to_a_point, "pg_ctlcluster 15 main promote"),
        (changes.upgrade, "penstock upgrade"),
        (changes.roll_back, "penstock restore /backup/before-upgrade"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_the_pages_have_all_commands_of_a_change(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, change: Any, runs: str
) -> None:
    migrated = "0" if change is changes.roll_back else "1"
    monkeypatch.setattr(Installation, "sql", lambda *_: [[migrated]])
    change(installation)
    host = installation.host
    assert isinstance(host, RecordingHost)
    assert any(runs in script for script in host.ran)


def test_each_day_has_a_name_of_its_own() -> None:
    names = [day.name for day in (*DAYS, *CHANGES)]
    assert len(set(names)) == len(names)
