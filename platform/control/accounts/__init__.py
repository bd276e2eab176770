"""People and how they sign in: users, passwords, second factors, sessions and trusted devices. It
knows nothing of organizations, which hear of accounts by `account_event`."""
