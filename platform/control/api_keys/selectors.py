"""Queries about API keys."""

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import Count, Q, QuerySet

from control.accounts.models import User
from control.api_keys.models import ApiKey, ApiKeyKind, PreviousSecret
from control.db.models import CredentialState, credentials_in, get_or_not_found
from control.organizations.models import Organization, OrganizationStatus, Project


def keys(
    organization: Organization,
    *,
    project: Project | None = None,
    with_revoked: bool = False,
    with_playground: bool = False,
) -> QuerySet[ApiKey]:
    """Return the keys of an organization or of one project, expired ones too, newest first."""
    found = _rows().filter(organization=organization)
    if project is not None:
        found = found.filter(project=project)
    if not with_revoked:
        found = found.filter(revoked_at__isnull=True)
    if not with_playground:
        found = found.filter(kind=ApiKeyKind.STANDARD)
    return found.order_by("-created_at", "id")


def active_keys(
    organization: Organization, now: datetime, *, project: Project | None = None
) -> QuerySet[ApiKey]:
    """Return the keys of an organization or of one project that work at `now`, newest first."""
    return keys(organization, project=project).filter(credentials_in(CredentialState.ACTIVE, now))


def active_key_counts(organization: Organization, now: datetime) -> dict[str, int]:
    """Return the number of keys that work at `now` by the id of the user who created them."""
    made = active_keys(organization, now).exclude(created_by=None).order_by("created_by_id")
    return dict(made.values_list("created_by_id").annotate(Count("id")))


def active_keys_of(user: User, now: datetime) -> QuerySet[ApiKey]:
    """Return the keys that a user created, in any organization, and that work at `now`."""
    rows = ApiKey.objects.filter(created_by=user, kind=ApiKeyKind.STANDARD)
    return rows.filter(credentials_in(CredentialState.ACTIVE, now))


def key(organization: Organization, key_id: str) -> ApiKey:
    """Return a key of any kind, revoked or not. Raises ObjectNotFound."""
    rows = keys(organization, with_revoked=True, with_playground=True)
    return get_or_not_found(rows, "API key", id=key_id)


def locked_key(organization: Organization, key_id: str) -> ApiKey:
    """Return a key with its row locked until the transaction ends. Raises ObjectNotFound."""
    return get_or_not_found(_locked(), "API key", organization=organization, id=key_id)


def locked_live_keys(
    organization: Organization, *, project: Project | None = None
) -> QuerySet[ApiKey]:
    """Return the keys that are not revoked, expired ones too, with their rows locked, by id. The
    locks serialize a revocation and other changes that end or revive keys, so that the revocation
    is published last."""
    found = _locked().filter(organization=organization, revoked_at__isnull=True)
    if project is not None:
        found = found.filter(project=project)
    return found.order_by("id")


def playground_key(project: Project, user: User) -> ApiKey | None:
    """Return the playground key of a user in a project, with its row locked."""
    rows = _locked().filter(project=project, created_by=user, kind=ApiKeyKind.PLAYGROUND)
    return rows.filter(revoked_at__isnull=True).first()


def open_playground_key(project: Project, user: User) -> ApiKey | None:
    """Return the playground key of a user in a project, without a lock, if the project is not
    archived and the organization is active."""
    rows = _rows().filter(project=project, created_by=user, kind=ApiKeyKind.PLAYGROUND)
    return rows.filter(
        revoked_at__isnull=True,
        project__archived_at__isnull=True,
        organization__status=OrganizationStatus.ACTIVE,
    ).first()


def key_by_digests(digests: Sequence[str], now: datetime) -> ApiKey | None:
    """Return the usable key of a secret at `now`, by the secret's digests with each pepper. The
    organization may be suspended."""
    previous = PreviousSecret.objects.filter(digest__in=digests, ends_at__gt=now)
    matches = Q(digest__in=digests) | Q(id__in=previous.values("key_id"))
    rows = _rows().filter(matches, project__archived_at__isnull=True)
    return rows.filter(credentials_in(CredentialState.ACTIVE, now)).first()


def previous_secrets(key: ApiKey, now: datetime) -> list[PreviousSecret]:
    """Return the replaced secrets that still work for a key, the last to end first."""
    return list(PreviousSecret.objects.filter(key=key, ends_at__gt=now).order_by("-ends_at", "-id"))


def previous_secrets_of(key_ids: Collection[str]) -> dict[str, list[PreviousSecret]]:
    """Return the replaced secrets, including expired ones, by key id."""
    found: dict[str, list[PreviousSecret]] = {}
    for secret in PreviousSecret.objects.filter(key_id__in=key_ids).order_by("id"):
        found.setdefault(secret.key_id, []).append(secret)
    return found


def key_for_token(organization: Organization, form_token: str) -> ApiKey | None:
    """Return the key that a form created, None if the form was not sent before."""
    return _rows().filter(organization=organization, form_token=form_token).first()


def active_key_count(now: datetime) -> int:
    """Return how many keys of all organizations work at `now`, for operators."""
    return ApiKey.objects.filter(credentials_in(CredentialState.ACTIVE, now)).count()


def _rows() -> QuerySet[ApiKey]:
    return ApiKey.objects.select_related("organization", "project", "created_by")


def _locked() -> QuerySet[ApiKey]:
    rows = ApiKey.objects.select_for_update(of=("self",), no_key=True)
    return rows.select_related("organization", "project")
