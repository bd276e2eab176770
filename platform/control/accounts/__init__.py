"""Users and how they sign in: passwords, second factors, sessions and trusted devices. This package
does not know organizations; they receive `account_event`."""
