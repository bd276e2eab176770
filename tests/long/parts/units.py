"""The units at work: in order, back after SIGKILL, drained at a stop, and confined."""

import json
from dataclasses import dataclass

from tests.long.parts import PartFailed
from tests.long.parts.first_day import known_customer
from tests.long.parts.host import wait_for
from tests.long.parts.installation import GATEWAYS, UNITS, Installation

ORDER = ("postgresql@15-main", "penstock-control", "penstock-fleet", "penstock-gateway@eu-1")
"""Units of which each starts after the one before."""
STREAM_TOKENS = 250
"""At the 0.02 s of the first day's engine 5 s: as long as a gateway is a lame duck."""


@dataclass(frozen=True)
class Process:
    """The facts about a running process that the kernel tells in /proc/PID/status."""

    user: str
    status: dict[str, str]

    @property
    def is_confined(self) -> bool:
        """Whether it has no capability, can gain none, and a filter of system calls."""
        wanted = {"CapEff": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
        return all(self.status[name] == value for name, value in wanted.items())


def check_units(installation: Installation) -> None:
    """Check the units of an installation that serves. Raises PartFailed."""
    check_order(installation)
    check_confinement(installation)
    check_drain(installation)
    check_restarts(installation)


def check_order(installation: Installation) -> None:
    """See that each unit started after those that it needs."""
    started = [
        int(
            installation.host.run(
                f"systemctl show --value -p ExecMainStartTimestampMonotonic {unit}"
            )
        )
        for unit in ORDER
    ]
    if started != sorted(started) or 0 in started:
        raise PartFailed(
            f"the units started out of order: {dict(zip(ORDER, started, strict=True))}"
        )
    print("    started in order:", ", ".join(ORDER), flush=True)


def check_confinement(installation: Installation) -> None:
    """See what systemd took from each process, and that it cannot write or read what is not its
    own."""
    host = installation.host
    for unit in UNITS:
        process = process_of(installation, unit)
        if not process.is_confined:
            raise PartFailed(f"{unit} runs as {process.user} with {process.status}")
        for path, attempt in (
            ("/usr/bin/penstock-was-here", "touch"),
            ("/etc/penstock/control.env", "head -c 1"),
            ("/root", "ls"),
        ):
            pid = main_pid(installation, unit)
            command = f"nsenter -t {pid} -m -S $(id -u {process.user}) -- {attempt} {path}"
            if host.run(f"if {command} >/dev/null 2>&1; then echo could; fi"):
                raise PartFailed(f"{unit} can {attempt} {path}")
    if "serving.engine.simulated" not in host.run("systemd-cgls --full -u penstock-fleet"):
        raise PartFailed("the engine does not run in the fleet's unit")
    print(
        "    confined: no capability, no write outside its folder, no secret of control", flush=True
    )


def process_of(installation: Installation, unit: str) -> Process:
    """Return the facts about a unit's process."""
    pid = main_pid(installation, unit)
    status = installation.host.run(f"cat /proc/{pid}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return Process(installation.host.run(f"stat -c %U /proc/{pid}").strip(), fields)


def main_pid(installation: Installation, unit: str) -> int:
    """Return the process id of a unit's process on the host; 0 where it does not run."""
    return int(installation.host.run(f"systemctl show --value -p MainPID {unit}"))


def check_drain(installation: Installation) -> None:
    """Stop a gateway while it streams: the stream ends as it should, and so does the unit."""
    key = known_customer(installation).api_key
    port, _ = GATEWAYS["eu-1"]
    unit, output = "penstock-gateway@eu-1", "/root/stream.txt"
    body = {
        "model": "trial",
        "stream": True,
        "max_tokens": STREAM_TOKENS,
        "min_tokens": STREAM_TOKENS,
        "messages": [{"role": "user", "content": "A long story"}],
    }
    installation.host.run(
        f"cat > /root/stream.json\nrm -f {output}\n"
        f"systemd-run --quiet --collect --unit=streaming -p StandardOutput=file:{output}"
        f" curl -sSN http://127.0.0.1:{port}/v1/chat/completions"
        f" -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json'"
        " --data-binary @/root/stream.json",
        given=json.dumps(body),
    )
    wait_for(lambda: "data:" in installation.host.run(f"cat {output}"), "a stream's first byte")
    installation.host.run(f"systemctl stop {unit}")
    result = installation.host.run(f"systemctl show --value -p Result {unit}").strip()
    told = installation.host.read(output)
    if result != "success" or "data: [DONE]" not in told:
        raise PartFailed(f"{unit} stopped with {result}; the stream ended in {told[-300:]!r}")
    installation.host.run(f"systemctl start {unit}")
    wait_for(installation.is_ready, "the gateway back")
    print("    drained: a stop lets a stream end", flush=True)


def check_restarts(installation: Installation) -> None:
    """Kill the process of each unit: systemd starts it again, and all are ready."""
    for unit in UNITS:
        before = main_pid(installation, unit)
        installation.host.run(f"systemctl kill --kill-whom=main --signal=KILL {unit}")
        wait_for(lambda: main_pid(installation, unit) not in (0, before), f"{unit} to be back")  # noqa: B023
        wait_for(installation.is_ready, f"all ready after {unit} was killed")
    print("    back after SIGKILL:", ", ".join(UNITS), flush=True)
