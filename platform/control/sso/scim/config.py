"""What of SCIM there is here, as its clients ask it."""

from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    ETag,
    Filter,
    Patch,
    ServiceProviderConfig,
    Sort,
)

RESULTS_MAX = 200
PROVIDER_CONFIG = ServiceProviderConfig(
    patch=Patch(supported=True),
    bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
    filter=Filter(supported=True, max_results=RESULTS_MAX),
    change_password=ChangePassword(supported=False),
    sort=Sort(supported=False),
    etag=ETag(supported=False),
    authentication_schemes=[
        AuthenticationScheme(
            type="oauthbearertoken",
            name="Bearer token",
            description="The token that an owner made on the SSO page of the console.",
            primary=True,
        )
    ],
)
