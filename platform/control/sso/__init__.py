"""Sign-in with an organization's identity provider (OIDC or SAML), and provisioning of its members
by SCIM 2.0. A provider is trusted only for addresses of domains that its organization verified."""
