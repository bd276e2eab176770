"""The Django app of mail."""

from django.apps import AppConfig

from control.operators import Duty


class MailConfig(AppConfig):
    """Mails, and the local mailbox that shows them where none leave."""

    name = "control.mail"
    label = "mail"
    verbose_name = "Mail"
    duty_to_look = Duty.MANAGE_OPERATORS
    """A letter may hold a live link of another operator\'s."""
    default_auto_field = "django.db.models.BigAutoField"
