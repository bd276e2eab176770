"""Whether an engine could compile what an answer is to hold to: asked of the fleet, ahead.

Where the fleet is away, or knows no compiler for the engine, the dialects' own bounds must do.
"""

import time

import aiohttp
import structlog

from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.records import DeploymentRecord
from serving.engine.work import Grammars
from serving.gateway.dialects.decode import invalid
from serving.gateway.errors import BadRequest, Unavailable
from serving.post import CallFailed, Calls
from serving.verdicts import Verdicts

log = structlog.get_logger(__name__)

ASK_SECONDS = 10.0
AWAY_SECONDS = 5.0
"""For which nobody asks a fleet again that did not answer."""
KEEP_SECONDS = 600.0

Key = tuple[str, str, str, bytes]


class GrammarCheck:
    """Asks the fleet at `fleet_url`, and remembers its verdicts by organization, schemas and
    weights. `unchecked_count` is how many requests went on with the dialects' bounds alone."""

    def __init__(self, session: aiohttp.ClientSession, fleet_url: str, credential: str) -> None:
        self.unchecked_count = 0
        self._fleet = Calls(session, fleet_url, credential)
        self._verdicts = Verdicts[Key](KEEP_SECONDS)
        self._away_until = 0.0

    async def check(
        self, organization_id: str, deployment: DeploymentRecord, grammars: Grammars
    ) -> None:
        """Raise BadRequest naming the field that no engine should be given, or Unavailable."""
        key = (organization_id, deployment.engine, deployment.weights, grammars.digest)
        verdict = self._verdicts.find(key)
        if verdict is None:
            verdict = await self._ask(organization_id, deployment, grammars)
            self._verdicts.keep(key, verdict)
        match verdict.verdict:
            case "refused":
                raise _bad(grammars, verdict, "the model's engine cannot compile this schema")
            case "too_complex":
                raise _bad(grammars, verdict, "this schema takes too long to compile; simplify it")
            case "busy":
                message = "Too many schemas of yours are being compiled. Please try again."
                raise Unavailable(message, code="server_is_overloaded")
            case "unknown":
                self.unchecked_count += 1

    async def _ask(
        self, organization_id: str, deployment: DeploymentRecord, grammars: Grammars
    ) -> GrammarVerdict:
        if time.monotonic() < self._away_until:
            return GrammarVerdict("unknown")
        question = GrammarQuestion(organization_id, deployment.deployment_id, grammars.schemas)
        try:
            return await self._fleet.post("grammars", question, GrammarVerdict, ASK_SECONDS)
        except CallFailed as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            log.warning("grammars_unchecked", error=str(error))
            return GrammarVerdict("unknown")


def _bad(grammars: Grammars, verdict: GrammarVerdict, wanted: str) -> BadRequest:
    return invalid(grammars.params[min(verdict.place, len(grammars.params) - 1)], wanted)
