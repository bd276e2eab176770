"""What the layers above may hear of, inside the transaction that does it.

`given_up`: arguments `message` (Message), `is_alarm` (whether it is a matter for the operator) and
`now`; nobody will try it again by themselves.
"""

from django.dispatch import Signal

given_up = Signal()
