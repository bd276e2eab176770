"""Whether an engine could compile what an answer is to hold to: asked of the fleet, ahead.

Where the fleet is away, or knows no compiler for the engine, the dialects' own bounds must do.
"""

import time
from collections import OrderedDict

import aiohttp
import structlog

from serving.contract.codec import ContractError, decode, encode
from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.records import DeploymentRecord
from serving.engine.transport.tls import as_payload
from serving.engine.work import Grammars
from serving.gateway.dialects.decode import invalid
from serving.gateway.errors import BadRequest, Unavailable

log = structlog.get_logger(__name__)

ASK_SECONDS = 10.0
CONNECT_SECONDS = 1.0
AWAY_SECONDS = 5.0
"""For which nobody asks a fleet again that did not answer."""
KEEP_SECONDS = 600.0
VERDICTS_MAX = 10_000
LASTING = frozenset({"good", "refused", "too_complex"})

Key = tuple[str, str, str, bytes]


class GrammarCheck:
    """Asks the fleet at `fleet_url`, and remembers its verdicts by organization, schemas and
    weights. `unchecked_count` is how many requests went on with the dialects' bounds alone."""

    def __init__(self, session: aiohttp.ClientSession, fleet_url: str, credential: str) -> None:
        self.unchecked_count = 0
        self._session = session
        self._url = f"{fleet_url}/grammars"
        self._headers = {
            "authorization": f"Bearer {credential}",
            "content-type": "application/json",
        }
        self._timeout = aiohttp.ClientTimeout(total=ASK_SECONDS, sock_connect=CONNECT_SECONDS)
        self._verdicts: OrderedDict[Key, tuple[float, GrammarVerdict]] = OrderedDict()
        self._away_until = 0.0

    async def check(
        self, organization_id: str, deployment: DeploymentRecord, grammars: Grammars
    ) -> None:
        """Raise BadRequest naming the field that no engine should be given, or Unavailable."""
        key = (organization_id, deployment.engine, deployment.weights, grammars.digest)
        verdict = self._known(key)
        if verdict is None:
            verdict = await self._ask(organization_id, deployment, grammars)
            self._keep(key, verdict)
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

    def _known(self, key: Key) -> GrammarVerdict | None:
        kept = self._verdicts.get(key)
        if kept is None or time.monotonic() >= kept[0]:
            return None
        self._verdicts.move_to_end(key)
        return kept[1]

    def _keep(self, key: Key, verdict: GrammarVerdict) -> None:
        if verdict.verdict in LASTING:
            self._verdicts[key] = time.monotonic() + KEEP_SECONDS, verdict
            if len(self._verdicts) > VERDICTS_MAX:
                self._verdicts.popitem(last=False)

    async def _ask(
        self, organization_id: str, deployment: DeploymentRecord, grammars: Grammars
    ) -> GrammarVerdict:
        if time.monotonic() < self._away_until:
            return GrammarVerdict("unknown")
        question = GrammarQuestion(organization_id, deployment.deployment_id, grammars.schemas)
        try:
            return await self._post(question)
        except (TimeoutError, aiohttp.ClientError, ContractError, OSError) as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            log.warning("grammars_unchecked", error=type(error).__name__)
            return GrammarVerdict("unknown")

    async def _post(self, question: GrammarQuestion) -> GrammarVerdict:
        async with self._session.post(
            self._url,
            data=as_payload(encode(question)),
            headers=self._headers,
            timeout=self._timeout,
            allow_redirects=False,
        ) as answer:
            data = await answer.read()
        if answer.status != 200:
            raise ContractError(f"grammars answered {answer.status}")
        return decode(data, GrammarVerdict)


def _bad(grammars: Grammars, verdict: GrammarVerdict, wanted: str) -> BadRequest:
    return invalid(grammars.params[min(verdict.place, len(grammars.params) - 1)], wanted)
