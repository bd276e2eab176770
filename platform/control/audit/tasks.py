"""What the audit does by itself."""

from celery import shared_task
from django.utils import timezone

from control.audit import hash_chain


@shared_task(name="audit.seal")
def seal() -> int:
    """Put new deeds into the chain."""
    return hash_chain.chain_events()


@shared_task(name="audit.prove", soft_time_limit=1800, time_limit=1860)
def prove() -> None:
    """Prove the chain; what is wrong with it is an alarm."""
    hash_chain.verify_chain(now=timezone.now())
