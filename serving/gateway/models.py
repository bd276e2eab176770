"""`GET /v1/models` and `/v1/models/{id}`: what the key's organization may name."""

import msgspec

from serving.contract.records import ModelRecord
from serving.gateway.auth import may_use
from serving.gateway.directory import Directory, Principal
from serving.gateway.errors import ModelNotFound


class Card(msgspec.Struct):
    """A model in OpenAI's words."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "penstock"


class CardList(msgspec.Struct):
    """All models of one organization."""

    data: list[Card]
    object: str = "list"


def find(directory: Directory, principal: Principal, name: str) -> ModelRecord:
    """Return the model of that name. Raises ModelNotFound when unknown or not granted."""
    model = directory.model(name, principal.organization_id)
    if model is None or not may_use(principal, name, model.public_id, *model.aliases):
        raise ModelNotFound(name)
    return model


def list_models(directory: Directory, principal: Principal) -> bytes:
    """Return the list as JSON."""
    granted = directory.models(principal.organization_id)
    cards = [
        _card(model.public_id, model)
        for model in granted
        if may_use(principal, model.public_id, *model.aliases)
    ]
    return msgspec.json.encode(CardList(cards))


def show_model(directory: Directory, principal: Principal, name: str) -> bytes:
    """Return one model as JSON. Raises ModelNotFound."""
    return msgspec.json.encode(_card(name, find(directory, principal, name)))


def _card(name: str, model: ModelRecord) -> Card:
    return Card(name, int(model.created_at.timestamp()))
