"""The Django app of mail."""

from django.apps import AppConfig


class MailConfig(AppConfig):
    """Mails, and the local mailbox that shows them where none leave."""

    name = "control.mail"
    label = "mail"
    verbose_name = "Mail"
    default_auto_field = "django.db.models.BigAutoField"
