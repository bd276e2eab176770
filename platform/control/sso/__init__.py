"""Sign-in by an organization's own identity provider (OIDC or SAML) and its members by SCIM 2.0.

Pages and the console call `services` and `selectors`; browsers and providers reach `views` and
`scim`. A provider is believed only about addresses of domains that its organization has proved.
"""
