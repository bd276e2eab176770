"""`GET /v1/models` and `/v1/models/{id}`: what the key's organization may name."""

from serving.contract.records import ModelRecord, Task
from serving.gateway.auth import Principal, may_use
from serving.gateway.directory import Directory
from serving.gateway.errors import ModelNotFound, ModelTaskMismatch


def find(directory: Directory, principal: Principal, name: str) -> ModelRecord:
    """Return the model of that name. Raises ModelNotFound when unknown or not granted."""
    model = directory.model(name, principal.organization_id)
    if model is None or not may_use(principal, name, model.public_id, *model.aliases):
        raise ModelNotFound(name)
    return model


def find_for(task: Task, directory: Directory, principal: Principal, name: str) -> ModelRecord:
    """Return the model of that name, for a route of this task.

    Raises ModelNotFound, or WrongTask for one that is for something else.
    """
    model = find(directory, principal, name)
    if model.task != task:
        raise ModelTaskMismatch(name, model.task)
    return model


def offers_of(directory: Directory, principal: Principal) -> list[tuple[str, ModelRecord]]:
    """Return what runs and may be called, under each name that it answers to."""
    return [
        (name, model)
        for model in directory.models(principal.organization_id)
        if directory.runs(model.variant_id, principal.organization_id)
        and may_use(principal, model.public_id, *model.aliases)
        for name in (model.public_id, *model.aliases)
    ]
