"""Price books: list prices and contracts, published once and never changed. Billing looks up the
price that was valid at a time."""
