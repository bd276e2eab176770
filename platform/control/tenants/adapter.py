"""What allauth asks of us: a sign-up makes an organization in the same transaction."""

from allauth.account.adapter import DefaultAccountAdapter


class AccountAdapter(DefaultAccountAdapter):
    """Signs people up."""
