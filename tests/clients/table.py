"""The table of clients and features, as Markdown and with what went wrong."""

from collections.abc import Iterable, Sequence

from tests.clients.client import FEATURES, Feature
from tests.clients.trial import Trial

WORDS = {"works": "yes", "fails": "**no**", "not asked": "not asked"}
ABSENT = "-"
"""The client has no such thing, or does not begin with it."""


def markdown(trials: Sequence[Trial]) -> str:
    """Return a row per client."""
    head = ["client", "speaks", "version", *FEATURES]
    rows = [[*_name(trial), *(_cell(trial, feature) for feature in FEATURES)] for trial in trials]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def refusals(trials: Iterable[Trial]) -> str:
    """Return how each client told what is not offered."""
    return "\n".join(
        f"- {trial.client.name}, {trial.client.speaks}: `{verdict.detail}`"
        for trial in trials
        if (verdict := trial.verdicts.get("refusal")) and verdict.outcome == "works"
    )


def failures(trials: Iterable[Trial]) -> str:
    """Return what must work and does not, each with the client's words."""
    return "\n".join(
        f"{trial.client.name}, {trial.client.speaks}: {feature}: {verdict.detail}"
        for trial in trials
        for feature, verdict in trial.failures.items()
    )


def _name(trial: Trial) -> list[str]:
    return [trial.client.name, trial.client.speaks, trial.version or trial.absence or "?"]


def _cell(trial: Trial, feature: Feature) -> str:
    verdict = trial.verdicts.get(feature)
    return WORDS[verdict.outcome] if verdict else ABSENT
