"""What customers may name: the models of the change feed."""

from serving.contract.records import ModelRecord
from serving.feed.mirror import RecordTable


class Offers:
    """Variants by each name that they answer to."""

    def __init__(self) -> None:
        self.models = RecordTable[ModelRecord](self._changed)
        self.request_tokens_max = 0
        """Of all models: what bounds a body before it is known which model it names."""
        self._names: dict[str, ModelRecord] = {}

    def find(self, name: str, organization_id: str) -> ModelRecord | None:
        """Return the variant that answers to `name` for this organization."""
        model = self._names.get(name)
        return model if model is not None and is_granted(model, organization_id) else None

    def granted(self, organization_id: str) -> list[ModelRecord]:
        """Return every variant granted to the organization, newest name last."""
        granted = [model for model in self.models.all() if is_granted(model, organization_id)]
        return sorted(granted, key=lambda model: (model.created_at, model.public_id))

    def _changed(self, before: ModelRecord | None, after: ModelRecord | None) -> None:
        for name in _names(before):
            # It may have passed to another variant in the same breath.
            if self._names.get(name) is before:
                del self._names[name]
        for name in _names(after):
            if after is not None:
                self._names[name] = after
        known = (model.request_tokens_max for model in self.models.all())
        self.request_tokens_max = max(known, default=0)


def is_granted(model: ModelRecord, organization_id: str) -> bool:
    """Tell whether an organization may use a model."""
    return model.organization_ids is None or organization_id in model.organization_ids


def _names(model: ModelRecord | None) -> tuple[str, ...]:
    return () if model is None else (model.public_id, *model.aliases)
