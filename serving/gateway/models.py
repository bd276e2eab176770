"""`GET /v1/models` and `/v1/models/{id}`: what the key's organization may name."""

from serving.contract.records import ModelRecord
from serving.gateway.auth import ApiRequest, Principal, may_use
from serving.gateway.dialects.base import Envelope
from serving.gateway.directory import Directory
from serving.gateway.http.response import HttpResponse
from serving.gateway.inference import InferenceHandler


class ModelsHandler:
    """Answers who asks what there is, which is a request like any other."""

    def __init__(self, inference: InferenceHandler) -> None:
        self._inference = inference
        self._directory = inference.directory

    async def list(self, http: ApiRequest, response: HttpResponse, envelope: Envelope) -> None:
        """Answer with all models that may be called."""
        principal = self._authenticate(http, response, envelope)
        await response.send(200, envelope.model_list(offers_of(self._directory, principal)))

    async def show(
        self, http: ApiRequest, response: HttpResponse, envelope: Envelope, name: str
    ) -> None:
        """Answer with one model. Raises ModelNotFound."""
        principal = self._authenticate(http, response, envelope)
        model = self._directory.find_model(principal, name)
        await response.send(200, envelope.model_card(name, model))

    def _authenticate(
        self, http: ApiRequest, response: HttpResponse, envelope: Envelope
    ) -> Principal:
        principal, rate_limits = (
            self._inference.authenticate(http, response),
            self._inference.rate_limits,
        )
        if (plan := rate_limits.plan_of(principal)) is not None:
            rate_limits.check(response, envelope, plan)
            rate_limits.count(plan)
        return principal


def offers_of(directory: Directory, principal: Principal) -> list[tuple[str, ModelRecord]]:
    """Return what runs and may be called, under each name that it answers to."""
    return [
        (name, model)
        for model in directory.models(principal.organization_id)
        if directory.runs(model.variant_id, principal.organization)
        and may_use(principal, model.public_id, *model.aliases)
        for name in (model.public_id, *model.aliases)
    ]
