"""`make clients`: start a stack, try every client against it, print the table.

python -m tests.clients [--only openai --only anthropic] [--markdown clients.md]
"""

import argparse
import json
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from infra.local.config import DEMO
from tests.clients.agents import agents_target
from tests.clients.client import CLIENTS, FEATURES, Client
from tests.clients.table import failures, markdown, refusals
from tests.clients.trial import Target, Trial, run_trial
from tests.fixtures import environment
from tests.fixtures.stack import Stack, running
from tests.fixtures.waiting import wait_until

ENGINES = 2
"""One that generates, one that embeds."""
LOAD_SECONDS_MAX = 600


def main() -> None:
    """Print the table; exit with 1 where something that must work does not."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients")
    parser.add_argument("--only", action="append", help="Clients whose name holds this.")
    parser.add_argument("--markdown", type=Path, help="A file for the table too.")
    options = parser.parse_args()
    environment.set_up()
    with running(engine="vllm", PENSTOCK_EMBEDDING_MODEL=DEMO) as stack:
        wait_until(
            lambda: len(stack.replicas()) == ENGINES,
            seconds=LOAD_SECONDS_MAX,
            what="both engines are ready",
        )
        target, clients = target_of(stack), chosen(options.only)
        trials = [told(run_trial(one, target)) for one in clients if not one.is_agent]
    with agents_target() as target:
        trials += [told(run_trial(one, target)) for one in clients if one.is_agent]
    table = "\n\n".join((markdown(trials), refusals(trials)))
    print(f"\n{table}\n")
    if options.markdown:
        options.markdown.write_text(table + "\n")
    if wrong := failures(trials):
        sys.exit(wrong)


def chosen(only: Sequence[str] | None) -> list[Client]:
    """Return the clients whose names hold one of the words; all where there is none."""
    return [each for each in CLIENTS if not only or any(word in each.name for word in only)]


def target_of(stack: Stack) -> Target:
    """Return what the stack offers."""
    request = urllib.request.Request(
        f"{stack.api_base}/models", headers={"authorization": f"Bearer {stack.api_key}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        offered = [card["id"] for card in json.load(answer)["data"]]
    embedding_model = next((name for name in offered if "embed" in name), None)
    return Target(stack.api_base, stack.api_key, stack.model, stack.config.weights, embedding_model)


def told(trial: Trial) -> Trial:
    """Say how a client did, as soon as it is known."""
    verdicts = [
        f"{name} {trial.verdicts[name].outcome}" for name in FEATURES if name in trial.verdicts
    ]
    name = f"{trial.client.name} {trial.version}, {trial.client.speaks}"
    print(f"{name}: {trial.absence or ', '.join(verdicts)}", flush=True)
    for name, verdict in trial.failures.items():
        print(f"  {name}: {verdict.detail}", flush=True)
    return trial


if __name__ == "__main__":
    main()
