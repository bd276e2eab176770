"""API keys as the data plane needs them: the digest, never the secret."""

from collections.abc import Collection, Sequence

from msgspec import UNSET

from control.budgets.limits import fine_budget_ids
from control.keys import models as keys
from control.keys.models import ApiKey
from control.keys.selectors import old_secrets_of
from control.limits.records import own_limits
from control.publish.services import News
from serving.contract.budget import limit_budget_id
from serving.contract.records import ApiKeyRecord, Limits, OldSecret


def news_of_keys(ids: Collection[str]) -> list[News]:
    """Return what to publish of keys: a record while each is in force, else its deletion.

    Keys of a suspended organization stay: who uses one is told why it is refused.
    """
    fine, own, old = fine_budget_ids(ids), own_limits(ids), old_secrets_of(ids)
    return [
        News(
            "api_key",
            key.id,
            _record(key, fine.get(key.id, ()), own.get(key.id, Limits()), old.get(key.id, ())),
        )
        if _is_in_force(key)
        else News("api_key", key.id, None)
        for key in ApiKey.objects.select_related("project").filter(id__in=ids).order_by("id")
    ]


def _is_in_force(key: ApiKey) -> bool:
    return key.revoked_at is None and not key.project.is_archived


def _record(
    key: ApiKey, fine: tuple[str, ...], limits: Limits, old: Sequence[keys.OldSecret]
) -> ApiKeyRecord:
    monthly = () if key.spend_limit_nanos is None else (limit_budget_id(key.id),)
    return ApiKeyRecord(
        key_id=key.id,
        digest=key.digest,
        organization_id=key.organization_id,
        project_id=key.project_id,
        scopes=tuple(key.scopes),
        models=None if key.allowed_models is None else tuple(key.allowed_models),
        networks=None if key.allowed_networks is None else tuple(key.allowed_networks),
        expires_at=key.expires_at,
        budget_ids=monthly + fine,
        limits=limits,
        old_secrets=tuple(OldSecret(one.digest, one.ends_at) for one in old) or UNSET,
    )
