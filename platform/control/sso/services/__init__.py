"""What may be done to an organization's sign-in and by its provider: verbs, one transaction each.

`signing_in` is what a provider's answer does, `members` what its SCIM calls do.
"""

from control.sso.services.connections import (
    enforce,
    forget_identity,
    make_optional,
    map_roles,
    remove_provider,
    set_up_oidc,
    set_up_saml,
)
from control.sso.services.domains import add_domain, remove_domain, verify_domain
from control.sso.services.tokens import end_scim, make_token, set_heir

__all__ = [
    "add_domain",
    "end_scim",
    "enforce",
    "forget_identity",
    "make_optional",
    "make_token",
    "map_roles",
    "remove_domain",
    "remove_provider",
    "set_heir",
    "set_up_oidc",
    "set_up_saml",
    "verify_domain",
]
