"""Whose address must be verified before they are let in: everybody's who signed up by themselves.
Sign-up so ends with the same page and a mail, whether there was an account or not."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.stages import EmailVerificationStage


class VerifiedAddressStage(EmailVerificationStage):
    """allauth's stage, but for people whom the set-up or an operator made, who vouches for their
    addresses."""

    def handle(self) -> tuple[Any, bool]:
        """Return the page that says to look into the mail, or None to go on."""
        user = self.login.user
        if user is not None and not EmailAddress.objects.filter(user_id=user.pk).exists():
            EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
            return None, True
        response, goes_on = super().handle()
        return response, goes_on
