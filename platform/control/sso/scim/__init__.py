"""SCIM 2.0 (RFC 7643, RFC 7644): the provider's way to keep an organization's members. The bearer
token says whose; `scim2-models` reads and writes what the standard defines."""
