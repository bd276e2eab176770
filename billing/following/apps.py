"""The Django app of the followers."""

from django.apps import AppConfig


class FollowingConfig(AppConfig):
    """Cursors, rollups, seals and archives."""

    name = "billing.following"
    label = "following"
    verbose_name = "Following"
    default_auto_field = "django.db.models.BigAutoField"
    facts = ("following_seal",)
