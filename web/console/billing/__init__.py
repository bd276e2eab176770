"""The Billing pages: forms, views, the balance and the list of payments."""
