"""Transactions that may take longer than the application's timeouts allow."""

UNLIMITED_TRANSACTION = """
SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'
"""
"""Lifts the time limit of the open transaction. PostgreSQL has one from version 17 on; before, the
statement does nothing."""
