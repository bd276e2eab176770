"""An engine's processes and its log.

A process group is known by pid *and* start: a pid is recycled by the system, a pid with the moment
its process started is not. Linux only, as `/proc` says both. The log is kept within a size, and
read for how loading goes and why it ended."""

import contextlib
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import msgspec
import psutil
import structlog

log = structlog.get_logger(__name__)


BYTES_MAX = 8 * 1024 * 1024
"""A log may grow to this; then all but its end is thrown away. The one before is kept once."""

TAIL_BYTES = 64 * 1024
_ERROR = re.compile(r"((?:\b[A-Za-z_.]*(?:Error|Exception)|\berror): .+)$")


class LogFile:
    """Reads what an engine appends to `path`; the engine holds the file open by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new_lines(self) -> list[str]:
        """Return the lines since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()

    def trim(self) -> None:
        """Move a log that grew too long aside, in place: its writer appends and goes on."""
        try:
            if self.path.stat().st_size <= BYTES_MAX:
                return
            data = self.path.read_bytes()[-BYTES_MAX:]
        except FileNotFoundError:
            return
        try:
            self.path.with_suffix(".log.1").write_bytes(data)
        except OSError as error:
            # On a full disk room is worth more than what an engine said before.
            log.error("engine_log_not_kept", file=self.path.name, error=str(error))
        with self.path.open("r+b") as file:
            file.truncate(0)
        self._offset = 0

    def remove(self) -> None:
        """Delete the log and the one before."""
        with contextlib.suppress(OSError):  # on a disk that takes nothing they stay
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".log.1").unlink(missing_ok=True)

    def last_error(self) -> str:
        """Return the last error an engine wrote, in one line; empty if it wrote none."""
        try:
            text = self.path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""
        found = [match[1] for line in text.splitlines() if (match := _ERROR.search(line))]
        return found[-1][:300] if found else ""


def last_stage(lines: list[str], stage_of: Callable[[str], str | None]) -> str | None:
    """Return the latest stage of loading that these lines begin."""
    return next((stage for line in reversed(lines) if (stage := stage_of(line))), None)


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
REPLICA_VARIABLE = "PENSTOCK_REPLICA_ID"
FOLDER_VARIABLE = "PENSTOCK_REPLICA_FOLDER"
"""The folder of the fleet that started a replica: a host may have several fleets."""
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_STATE, _GROUP, _SESSION, _START = 0, 2, 3, 19
_CPU = slice(11, 15)
"""Ticks of a process and of its children that ended, in user mode and in the kernel."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessIdentity(msgspec.Struct, frozen=True):
    """One process: `mark` is its start in clock ticks, and the boot they count from."""

    pid: int
    mark: str


class ProcessTable:
    """Who is in which group, looked up for all groups at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen_at = float("-inf")
        self._groups: dict[str, list[ProcessIdentity]] = {}

    def members(self, leader: int, *, seconds_old_max: float) -> tuple[ProcessIdentity, ...]:
        """Return the members of the group that a leader opened in a session of its own, as they
        were at most so many seconds ago."""
        now = self._clock()
        if now - self._seen_at >= seconds_old_max:
            self._seen_at, self._groups = now, _groups()
        return tuple(self._groups.get(str(leader), ()))


PROCESSES = ProcessTable()


class ProcessGroup:
    """The process group (and session) that `leader` opened, and the members seen in it."""

    def __init__(
        self,
        leader: ProcessIdentity,
        members: tuple[ProcessIdentity, ...] = (),
        child: Popen[bytes] | None = None,
    ) -> None:
        self.leader = leader
        self.members = members
        self._child = child

    @property
    def is_alive(self) -> bool:
        """Whether the leader itself still runs; a zombie does not."""
        stat = _stat(self.leader.pid)
        return stat is not None and _mark(stat) == self.leader.mark and stat[_STATE] != "Z"

    @property
    def survivors(self) -> tuple[ProcessIdentity, ...]:
        """The members that are still there, the leader's zombie aside."""
        found = self._listed(0.0) if self._holds_pid else self.members
        return tuple(member for member in found if member_is_alive(member))

    @property
    def cpu_seconds(self) -> float:
        """What the members that were seen have used of processors, their ended children too."""
        used = 0
        for member in self.members:
            stat = _stat(member.pid)
            if stat is not None and _mark(stat) == member.mark:
                used += sum(map(int, stat[_CPU]))
        return used / _TICKS_PER_SECOND

    def refresh(self, *, seconds_old_max: float = 0.0) -> bool:
        """Remember who is in the group, or was at most so many seconds ago; tell whether that has
        changed."""
        if not self._holds_pid:
            return False
        known = self.members
        self.members = tuple(
            member for member in self._listed(seconds_old_max) if member_is_alive(member)
        )
        return known != self.members

    def terminate(self) -> None:
        """Ask the leader to end; it tells its children itself, after running work."""
        _send(self.leader, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the whole group, orphans included, and nobody else."""
        if self._holds_pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.leader.pid, signal.SIGKILL)
        for member in self.members:
            _send(member, signal.SIGKILL)

    def reap(self) -> int | None:
        """Collect the ended leader if it is our child; return its exit code, if known.

        Only after `kill`: an uncollected leader keeps the group's id from being given anew.
        """
        return None if self._child is None else self._child.poll()

    @property
    def _holds_pid(self) -> bool:
        """Whether the leader, alive or zombie, still owns its pid and so the group's id."""
        stat = _stat(self.leader.pid)
        return stat is not None and _mark(stat) == self.leader.mark

    def _listed(self, seconds_old_max: float) -> tuple[ProcessIdentity, ...]:
        return PROCESSES.members(self.leader.pid, seconds_old_max=seconds_old_max)


def _groups() -> dict[str, list[ProcessIdentity]]:
    """Return the members of all groups whose leaders opened a session."""
    groups: dict[str, list[ProcessIdentity]] = {}
    for pid in psutil.pids():
        stat = _stat(pid)
        if stat is not None and stat[_GROUP] == stat[_SESSION]:
            groups.setdefault(stat[_GROUP], []).append(ProcessIdentity(pid, _mark(stat)))
    return groups


def group_of(child: "Popen[bytes]") -> ProcessGroup:
    """Return the group of a process just started in a session of its own."""
    return ProcessGroup(ProcessIdentity(child.pid, mark_of(child.pid) or ""), child=child)


def find_group(replica_id: str, folder: Path) -> ProcessGroup | None:
    """Return the group whose leader was started for a replica of the fleet in a folder, by its
    environment."""
    marks = ((REPLICA_VARIABLE, replica_id), (FOLDER_VARIABLE, str(folder)))
    wanted = {f"{name}={value}".encode() for name, value in marks}
    for pid in psutil.pids():
        stat = _stat(pid)
        is_leader = stat is not None and stat[_SESSION] == str(pid)
        if stat is not None and is_leader and wanted.issubset(_environment(pid)):
            return ProcessGroup(ProcessIdentity(pid, _mark(stat)))
    return None


def find_groups(folder: Path) -> dict[str, list[ProcessGroup]]:
    """Return, by replica id, the groups of all living processes that were started for the replicas
    of the fleet in a folder, also of those whose leader has ended.

    A container may have a folder of the same name: its processes are not ours, since they have a
    PID namespace of their own.
    """
    wanted = f"{FOLDER_VARIABLE}={folder}".encode()
    sessions: defaultdict[str, list[ProcessIdentity]] = defaultdict(list)
    replica_of: dict[str, str] = {}
    for pid in psutil.pids():
        stat = _stat(pid)
        if stat is None or stat[_STATE] == "Z":
            continue
        sessions[stat[_SESSION]].append(ProcessIdentity(pid, _mark(stat)))
        environment = _environment(pid)
        if wanted in environment and _is_of_our_namespace(pid):
            replica_of[stat[_SESSION]] = _value(environment, REPLICA_VARIABLE)
    found: defaultdict[str, list[ProcessGroup]] = defaultdict(list)
    for session, replica_id in replica_of.items():
        if _ID.fullmatch(replica_id) and session != str(os.getsid(0)):
            members = tuple(sessions[session])
            leader = next((one for one in members if str(one.pid) == session), None)
            gone = ProcessIdentity(int(session), "")
            found[replica_id].append(ProcessGroup(leader or gone, members))
    return dict(found)


def mark_of(pid: int) -> str | None:
    """Return the mark of a process, None when there is none."""
    stat = _stat(pid)
    return None if stat is None else _mark(stat)


def member_is_alive(member: ProcessIdentity) -> bool:
    """Tell whether this very process still runs."""
    stat = _stat(member.pid)
    return stat is not None and _mark(stat) == member.mark and stat[_STATE] != "Z"


def _send(member: ProcessIdentity, number: signal.Signals) -> None:
    """Signal through a pidfd: it is opened first and checked then, so the pid cannot be reused."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(member.pid)
        try:
            if member_is_alive(member):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses and may hold anything.
    return text[text.rindex(")") + 2 :].split()


def _mark(stat: list[str]) -> str:
    return f"{stat[_START]}@{BOOT}"


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _value(environment: list[bytes], name: str) -> str:
    prefix = f"{name}=".encode()
    values = (each.removeprefix(prefix) for each in environment if each.startswith(prefix))
    return next(values, b"").decode(errors="replace")


def _is_of_our_namespace(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/pid").samefile("/proc/self/ns/pid")
    except OSError:
        return False
