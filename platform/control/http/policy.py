"""The Content-Security-Policy: nothing from other hosts, no inline script or style
(`CONTENT_SECURITY_POLICY` in the settings); and the two rooms whose pages need more."""

from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest
from django.http.response import HttpResponseBase

# The admin's Alpine evaluates its attributes, and Unfold puts colours and data into the page;
# only operators get there, and still nothing comes from elsewhere. Its mailbox shows each mail in
# a frame, under a policy of the mail's own.
ADMIN = {
    "script-src": [SELF, UNSAFE_INLINE, UNSAFE_EVAL],
    "style-src": [SELF, UNSAFE_INLINE],
    "frame-src": [SELF],
}
# Swagger UI sets styles from its script; the page holds nothing of a tenant's.
DOCS = {"style-src": [SELF, UNSAFE_INLINE]}
LOOSER = {"admin": ADMIN, "docs": DOCS}
"""By the url's namespace or name: what stands in place of the strict directives."""


class PagePolicy(CSPMiddleware):
    """Puts the policy on every answer that does not carry its own; unknown pages get the strict."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        """Return the parts of the policy of the page that answered `request`."""
        parts = super().get_policy_parts(request, response, report_only)
        match = request.resolver_match
        if match is not None and parts.replace is None:
            parts.replace = LOOSER.get(match.app_name) or LOOSER.get(match.view_name)
        return parts
