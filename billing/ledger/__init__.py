"""The books: accounts, balanced transactions and their entries, never changed once written."""
