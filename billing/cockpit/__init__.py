"""What the operator reads the books by: who owes what, statements, revenue, unspent credit."""
