"""What the layers above may hear of, inside the transaction that does it.

`organization_created`: arguments `organization` (Organization) and `actor` (Actor).
`limits_changed`: arguments `limits`, new limits in nanos by budget id (None lifts one; a balance's
is the credit line beyond what was paid), and `now`.
"""

from django.dispatch import Signal

organization_created = Signal()
limits_changed = Signal()
