"""The operators who run the platform: invitations, roles and removal. Only the admin and the demo
data call it."""
