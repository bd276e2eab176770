"""Wrong passwords by the ten thousand against one person, while others sign in."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.plan import Plan
from tests.benchmarks.report import Row, Table, percentile
from tests.fixtures.stack import Stack, running
from tests.fixtures.wrong_passwords import (
    Browser,
    Meanwhile,
    attack,
    many_addresses,
    people_signing_in,
    script_of_people,
)

TRIES = 10_000
SPRAYED = 500
"""Tries where each is of another account, all of which are hashed: some 30 a second."""
NETWORKS = 2_500
AT_ONCE = 16
QUIET_SECONDS = 10.0
EVERY_SECONDS = 0.2
SLOWEST_P95_SECONDS = 0.3
VICTIM = "victim@acme.example"
OTHERS = {f"person{n}@acme.example": Browser(f"127.200.{n}.7") for n in range(8)}
LOOKS_MAX = {"one address": 10, "many addresses": 100, "many accounts": SPRAYED}
"""Passwords that may be looked at: the allowances, twice where a window ended meanwhile."""
REMARKS = (
    f"{TRIES} tries against one person, {AT_ONCE} at once, each on a connection of its own, from"
    f" one address and from {NETWORKS} networks of the loopback; then {SPRAYED} against as many"
    f" accounts from {NETWORKS} networks. Eight others sign in one after the"
    f" other, {EVERY_SECONDS} s apart, each on a device that is known, with Argon2id. Attackers,"
    " people and the platform share this machine.",
)


@dataclass
class Attack:
    """What came of one attack."""

    name: str
    tries: int
    seconds: float
    answers: Counter
    others: Meanwhile


def measure(plan: Plan) -> Table:
    """Return how long others take to sign in, quietly and under both attacks."""
    with running(engine="simulated") as stack:
        _make_people(stack)
        quiet, attacks = asyncio.run(_attacked(stack.credentials["console_url"]))
    rows = [_p95("quiet", quiet)]
    for each in attacks:
        rows += [
            _p95(each.name, each.others),
            Row("answers to attackers a second", each.name, "/s", [each.tries / each.seconds]),
            Row("wrong passwords looked at", each.name, "", [float(each.answers[200])]),
        ]
    checks = [
        "no wrong password let anybody in, and all but the allowance was refused unread",
        "the person attacked signed in on her own device, and on a new one at home",
        "the same person signed in from elsewhere while one address attacked her",
        f"nobody else was refused, or took more than {SLOWEST_P95_SECONDS} s (p95)",
    ]
    return Table(f"Sign-in under {TRIES} wrong passwords", rows, checks, REMARKS)


def _make_people(stack: Stack) -> None:
    script = script_of_people([VICTIM, *OTHERS])
    made = stack.penstock("django", "shell", "--no-imports", "--command", script)
    if made.returncode:
        raise BenchmarkFailed(made.stderr)


async def _attacked(console: str) -> tuple[Meanwhile, list[Attack]]:
    own = Browser("127.100.1.7")
    _must(await own.sign_in(console, VICTIM) == 302, "the victim has no account")
    for email, browser in OTHERS.items():
        await browser.sign_in(console, email)
    async with people_signing_in(console, OTHERS, every_seconds=EVERY_SECONDS) as quiet:
        await asyncio.sleep(QUIET_SECONDS)
    first = await _one(console, "one address", [("127.50.1.1", VICTIM)] * TRIES)
    elsewhere = await Browser("127.101.1.7").sign_in(console, VICTIM)
    _must(elsewhere == 302, f"the victim elsewhere was told {elsewhere}")
    networks = many_addresses(NETWORKS)
    tries = [(each, VICTIM) for each in networks] * (TRIES // NETWORKS)
    second = await _one(console, "many addresses", tries)
    for browser, where in ((own, "her own device"), (Browser("127.100.1.9"), "a new one at home")):
        status = await browser.sign_in(console, VICTIM)
        _must(status == 302, f"the victim on {where} was told {status}")
    sprayed = [(networks[n % NETWORKS], f"guess{n}@acme.example") for n in range(SPRAYED)]
    third = await _one(console, "many accounts", sprayed)
    return quiet, [first, second, third]


async def _one(console: str, name: str, tries: list[tuple[str, str]]) -> Attack:
    began = time.monotonic()
    async with people_signing_in(console, OTHERS, every_seconds=EVERY_SECONDS) as others:
        answers = await attack(console, tries, at_once=AT_ONCE)
    done = Attack(name, len(tries), time.monotonic() - began, answers, others)
    _must(set(answers) <= {200, 429, 503}, f"attackers were told {dict(answers)}")
    _must(answers[200] <= LOOKS_MAX[name], f"{answers[200]} wrong passwords were looked at")
    _must(set(others.statuses) == {302}, f"others were told {dict(others.statuses)}")
    p95 = percentile(others.seconds, 95)
    _must(p95 <= SLOWEST_P95_SECONDS, f"others took {p95:.3f} s (p95) under {name}")
    return done


def _p95(name: str, seen: Meanwhile) -> Row:
    return Row("sign-in of others, p95", name, "ms", [percentile(seen.seconds, 95) * 1000])


def _must(is_so: bool, trouble: str) -> None:
    if not is_so:
        raise BenchmarkFailed(trouble)
