"""The bad days: what is done to an installation under load, and the table of what clients saw."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.long.parts import PartFailed
from tests.long.parts.host import wait_for
from tests.long.parts.installation import GATEWAYS, UNITS, Installation
from tests.long.parts.load import IN_FLIGHT_MIN, Load, SentRequest
from tests.long.parts.units import main_pid

AWAY_SECONDS = 60.0
CALM_REQUESTS = 60
"""Requests that must have begun and ended after a day, before the next one begins."""
NOTICE_SECONDS = 3.0
"""The time in which a client notices that the process which served it was killed."""
RECOVERY_SECONDS = 900.0
ENGINE = "[s]erving.engine.simulated"
"""A pattern that does not match a command which looks for it."""
BOOKED = """
SELECT client_request_id, count(*), min(event_id::text), min(outcome), sum(output_tokens)
FROM metering_usage_event WHERE client_request_id LIKE 'bad-%' GROUP BY 1;
"""


@dataclass(frozen=True)
class Day:
    """A bad day: its name, what is done, and whether it kills a process that serves requests, so
    that those in flight are lost for good reason."""

    name: str
    do: Callable[[Installation], None]
    is_kill: bool = False


@dataclass(frozen=True)
class Window:
    """The time of a day, Unix time in seconds: from `start` on requests count for it, at `blow` it
    began; and how many requests were in flight then."""

    day: Day
    start: float
    blow: float
    end: float
    in_flight: int

    def requests(self, load: Load) -> list[SentRequest]:
        """Return the requests that ended in it."""
        return [each for each in load.ended if self.start < each.ended <= self.end]

    def is_waived(self, request: SentRequest) -> bool:
        """Tell whether a request that failed was in flight at a process that was killed."""
        noticed = self.blow + NOTICE_SECONDS
        return self.day.is_kill and request.began <= noticed and request.ended <= noticed


def ended(unit: str) -> Day:
    """Return the day on which a unit is stopped by SIGTERM and started again."""
    return Day(f"SIGTERM {unit}", lambda on: _run(on, f"systemctl restart {unit}"))


def killed(unit: str) -> Day:
    """Return the day on which a unit's process is killed, and systemd starts it again."""

    def do(installation: Installation) -> None:
        before = main_pid(installation, unit)
        _run(installation, f"systemctl kill --kill-whom=main --signal=KILL {unit}")
        wait_for(lambda: main_pid(installation, unit) not in (0, before), f"{unit} to be back")

    return Day(f"SIGKILL {unit}", do, is_kill="gateway" in unit)


def away(unit: str, name: str) -> Day:
    """Return the day on which a server is away for a minute."""

    def do(installation: Installation) -> None:
        _run(installation, f"systemctl stop {unit}")
        time.sleep(AWAY_SECONDS)
        _run(installation, f"systemctl start {unit}")

    return Day(f"{name} away for {AWAY_SECONDS:.0f} s", do)


def kill_an_engine(installation: Installation) -> None:
    """Kill one replica of the model."""
    _run(
        installation,
        f"kill -KILL $(grep -lz {ENGINE} /proc/[0-9]*/cmdline | head -1 | cut -d/ -f3)",
    )


DAYS = (
    *(ended(unit) for unit in UNITS),
    *(killed(unit) for unit in UNITS),
    Day("SIGKILL an engine", kill_an_engine, is_kill=True),
    away("redis-server", "Redis"),
    away("postgresql@15-main", "PostgreSQL"),
)


def live_through(installation: Installation, load: Load, days: Sequence[Day]) -> list[Window]:
    """Let one day after another happen, each once the one before is over. Raises PartFailed where
    too little is in flight, or the installation does not recover."""
    windows, start = [], time.time()
    for day in days:
        wait_for(lambda: load.in_flight() >= IN_FLIGHT_MIN, f"{IN_FLIGHT_MIN} requests in flight")
        blow, in_flight = time.time(), load.in_flight()
        day.do(installation)
        wait_for(installation.is_ready, f"all ready after {day.name}", seconds=RECOVERY_SECONDS)
        recovered = time.time()
        wait_for(
            lambda: load.is_past(recovered, count=CALM_REQUESTS),  # noqa: B023
            f"{CALM_REQUESTS} requests after {day.name}",
        )
        windows.append(Window(day, start, blow, time.time(), in_flight))
        start = windows[-1].end
        print(f"  {start - blow:6.1f} s  {day.name}", flush=True)
    return windows


def judge(installation: Installation, load: Load, windows: Sequence[Window]) -> None:
    """Print the table, after all usage has arrived. Raises PartFailed if a request failed that no
    killed process served, or one is not booked as its client saw it."""
    wait_for(lambda: journal_rows(installation) == 0, "all usage shipped")
    books = {row[0]: row[1:] for row in installation.sql(BOOKED)}
    wrong = [words for request in load.ended if (words := misbooked(request, books))]
    print(f"\n{'day':<34} {'sent':>5} {'failed':>6} {'waived':>6} {'in flight':>9}", flush=True)
    failures: list[tuple[str, float, SentRequest]] = []
    for window in windows:
        requests = window.requests(load)
        failed = [each for each in requests if not each.is_served]
        waived = [each for each in failed if window.is_waived(each)]
        lost = [each for each in failed if not window.is_waived(each)]
        counts = f"{len(requests):>5} {len(lost):>6} {len(waived):>6} {window.in_flight:>9}"
        print(f"{window.day.name:<34} {counts}", flush=True)
        failures += [(window.day.name, window.blow, each) for each in lost]
    over = windows[-1].end
    late = [each for each in load.ended if each.ended > over and not each.is_served]
    failures += [("after the days", over, each) for each in late]
    print(f"{len(load.ended)} sent; {len(wrong)} not booked as their clients saw them", flush=True)
    for name, blow, each in failures[:20]:
        since = f"{each.began - blow:+.1f} to {each.ended - blow:+.1f} s"
        print(f"  {name}: {each.client_id}, {since}, {each.status} {each.error}")
    for words in wrong[:20]:
        print(f"  {words}")
    if failures or wrong:
        raise PartFailed(f"{len(failures)} requests failed, {len(wrong)} are not booked rightly")


def misbooked(request: SentRequest, books: dict[str, list[str]]) -> str:
    """Return what is wrong with how a request is booked, "" if nothing is: one that was served has
    one event, under the id and with the tokens that its client saw; another has one at most."""
    count, event_id, outcome, tokens = books.get(request.client_id, ["0", "", "", "0"])
    booked = (int(count), event_id, outcome, int(tokens))
    served = (1, request.request_id, "completed", request.tokens)
    is_right = booked == served if request.is_served else int(count) <= 1
    return "" if is_right else f"{request.client_id}: {request} is booked as {booked}"


def journal_rows(installation: Installation) -> int:
    """Return how many events the gateways have not delivered."""
    ports = " ".join(f"http://127.0.0.1:{operator}/metrics" for _, operator in GATEWAYS.values())
    lines = installation.host.run(f"curl -fsS {ports} | grep ^penstock_gateway_journal_rows")
    return sum(int(float(line.split()[-1])) for line in lines.splitlines())


def _run(installation: Installation, command: str) -> None:
    installation.host.run(command)
