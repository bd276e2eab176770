"""Sign-in by an organization's own identity provider (OIDC or SAML), and its members by SCIM 2.0. A
provider is believed only about addresses of domains that its organization has verified."""
