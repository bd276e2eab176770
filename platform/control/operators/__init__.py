"""The operators who run the platform: invitations, roles and removal. Nothing but the admin and the
demo data calls it."""
