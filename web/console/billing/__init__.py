"""The Billing page: its forms and its list of payments."""
