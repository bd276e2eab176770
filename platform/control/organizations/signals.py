"""What the rooms above may hear of, inside the transaction that does it.

`organization_created`: arguments `organization` (Organization) and `actor` (Actor).
`organization_end_asked`: arguments `organization` and `now`; who knows something that ends with it,
or that stands in the way, returns it as a list of `Consequence`.
`organization_ended`: arguments `organization` (its row locked) and `now`; who ends something with
it returns what is to be published of that, as a list of rows.
`limits_changed`: arguments `limits`, new limits in nanos by budget id (None lifts one; a balance's
is the credit line beyond what was paid), and `now`.
`project_archived`: arguments `project` (Project) and `now`; who ends something with it returns what
is to be published of that, as a list of rows.
`seat_changed`: arguments `membership` (its role as it is now), `is_over` (whether its member left),
`heir` (Membership, None for nobody) and `now`; who ends something with it, or passes it on to the
heir, returns what is to be published of that, as a list of rows.
`idempotency_keys_refused`: argument `organization`, which took such keys until now.
"""

from dataclasses import dataclass

from django.dispatch import Signal

organization_created = Signal()
organization_deletion_previewed = Signal()
organization_deleted = Signal()
limits_changed = Signal()
project_archived = Signal()
membership_changed = Signal()
idempotency_keys_refused = Signal()


@dataclass(frozen=True, slots=True)
class DeletionEffect:
    """What follows from deleting an organization, in a sentence; an obstacle forbids it."""

    words: str
    is_obstacle: bool = False
