"""Price books: list prices and contracts, published once and never changed. Billing asks which
price was valid when."""
