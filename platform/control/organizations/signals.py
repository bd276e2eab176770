"""Signals of this package, sent inside the transaction of the change.

`organization_created`: arguments `organization` (Organization) and `actor` (Actor).
`organization_deletion_previewed`: arguments `organization` and `now`; receivers return a list of
`DeletionEffect`.
`organization_deleted`: arguments `organization` (its row locked) and `now`; receivers return a list
of `FeedRef`, the rows that they ended, which the sender publishes.
`limits_changed`: arguments `limits`, new limits in nanos by budget id (None removes one; a
balance's is the credit limit beyond what was paid), and `now`.
`limit_previewed`: arguments `organization`, `limit_nanos`, the monthly limit that it may get, and
`now`; receivers return what that stops at once, as a sentence, empty if nothing.
`project_archived`: arguments `project` (Project) and `now`; receivers return a list of `FeedRef`.
`membership_changed`: arguments `membership` (with its new role), `is_over` (whether the member
left), `heir` (the Membership that is the transfer target, or None) and `now`; receivers return a
list of `FeedRef`, the rows that they ended or transferred.
`idempotency_keys_refused`: argument `organization`, which accepted such keys until now.
"""

from dataclasses import dataclass

from django.dispatch import Signal

organization_created = Signal()
organization_deletion_previewed = Signal()
organization_deleted = Signal()
limits_changed = Signal()
limit_previewed = Signal()
project_archived = Signal()
membership_changed = Signal()
idempotency_keys_refused = Signal()


@dataclass(frozen=True, slots=True)
class DeletionEffect:
    """An effect of deleting an organization, as a sentence; an obstacle prevents the deletion."""

    words: str
    is_obstacle: bool = False
