"""What the layers above may hear of, inside the transaction that does it.

`organization_created`: arguments `organization` (Organization) and `actor` (Actor).
"""

from django.dispatch import Signal

organization_created = Signal()
