"""`penstock operators create-token`: create a token for scripts of an operator."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from control.accounts.models import user_by_email
from control.errors import ServiceError
from control.operators.models import TOKEN_PERMISSIONS
from control.operators.services import create_operator_token
from control.permissions import Actor


class Command(BaseCommand):
    """Creates a token that acts as an operator in the operators' API. The admin does the same for
    operators who are signed in."""

    help = "Create an operator token and print its secret, which is not stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the operator's address, the token's name and its permissions."""
        parser.add_argument("email", help="the operator that the token acts as")
        parser.add_argument("--name", required=True, help="of the token, for lists and audit log")
        parser.add_argument(
            "--permission",
            action="append",
            dest="permissions",
            choices=[str(each) for each in TOKEN_PERMISSIONS],
            default=[],
            help="may be given repeatedly",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the secret alone. Raises CommandError for an address that is no operator's, and for
        a permission that the operator's role lacks."""
        email = options["email"]
        operator = user_by_email(email)
        if operator is None or not operator.operator_role:
            raise CommandError(f"{email} is no operator's address")
        try:
            _, secret = create_operator_token(
                actor=Actor.for_user(operator),
                name=options["name"],
                permissions=options["permissions"],
            )
        except ServiceError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(secret)
