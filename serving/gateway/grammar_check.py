"""Whether an engine could compile what an answer is to hold to: asked of the fleet, ahead.

What nobody can tell goes to no engine. Where the fleet knows no compiler for the engine, the
dialects' own bounds must do.
"""

import time
from collections.abc import Mapping

import aiohttp
import structlog

from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.records import DeploymentRecord
from serving.engine.request import RequestGrammars
from serving.gateway.dialects.validation import invalid
from serving.gateway.errors import BadRequest, ServiceUnavailable
from serving.grammar_verdicts import GrammarVerdicts
from serving.internal_http import InternalCallError, InternalHttpClient

log = structlog.get_logger(__name__)

ASK_SECONDS = 10.0
AWAY_SECONDS = 5.0
"""For which nobody asks a fleet again that did not answer."""
KEEP_SECONDS = 600.0
UNKNOWN_RETRY_SECONDS = 5
"""A compiler takes about ten seconds to load, and one job of it a second or two."""

Key = tuple[str, str, str, bytes]


class GrammarChecker:
    """Asks the deployment's fleet, of those at `fleet_urls`, and remembers its verdicts by
    organization, schemas and weights. `unchecked_count` is how many requests went on with the
    dialects' bounds alone, `unknown_count` how many were refused since nobody could tell."""

    def __init__(
        self, session: aiohttp.ClientSession, fleet_urls: Mapping[str, str], credential: str
    ) -> None:
        self.unchecked_count = 0
        self.unknown_count = 0
        self._fleets = {
            fleet_id: InternalHttpClient(session, url, credential)
            for fleet_id, url in fleet_urls.items()
        }
        self._verdicts = GrammarVerdicts[Key](KEEP_SECONDS)
        self._away_until: dict[str, float] = {}
        """By fleet."""

    async def check(
        self, organization_id: str, deployment: DeploymentRecord, grammars: RequestGrammars
    ) -> None:
        """Raise BadRequest naming the field that no engine should be given, or
        ServiceUnavailable."""
        key = (organization_id, deployment.engine, deployment.weights, grammars.digest)
        verdict = self._verdicts.find(key)
        if verdict is None:
            verdict = await self._ask(organization_id, deployment, grammars)
            if verdict.verdict == "unknown":
                verdict = self._verdicts.last(key) or verdict
            else:
                self._verdicts.keep(key, verdict)
        match verdict.verdict:
            case "refused":
                raise _bad(grammars, verdict, "the model's engine cannot compile this schema")
            case "too_complex":
                raise _bad(grammars, verdict, "this schema takes too long to compile; simplify it")
            case "busy":
                message = "Too many schemas of yours are being compiled. Please try again."
                raise ServiceUnavailable(message, code="server_is_overloaded")
            case "unknown":
                self.unknown_count += 1
                raise _not_checked()
            case "unchecked":
                self.unchecked_count += 1

    async def _ask(
        self, organization_id: str, deployment: DeploymentRecord, grammars: RequestGrammars
    ) -> GrammarVerdict:
        fleet_id, now = deployment.fleet_id, time.monotonic()
        fleet = self._fleets.get(fleet_id)
        if fleet is None or now < self._away_until.get(fleet_id, now):
            return GrammarVerdict("unknown")
        question = GrammarQuestion(organization_id, deployment.deployment_id, grammars.schemas)
        try:
            return await fleet.post("grammars", question, GrammarVerdict, ASK_SECONDS)
        except InternalCallError as error:
            self._away_until[fleet_id] = time.monotonic() + AWAY_SECONDS
            log.warning("grammars_unknown", error=str(error))
            return GrammarVerdict("unknown")


def _not_checked() -> ServiceUnavailable:
    return ServiceUnavailable(
        "Whether the model's engine can compile this schema is still being checked. "
        "Please try again in a few seconds.",
        code="server_is_overloaded",
        retry_after_seconds=UNKNOWN_RETRY_SECONDS,
    )


def _bad(grammars: RequestGrammars, verdict: GrammarVerdict, wanted: str) -> BadRequest:
    return invalid(grammars.params[min(verdict.place, len(grammars.params) - 1)], wanted)
