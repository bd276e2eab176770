"""Connections to PostgreSQL, and what the application's role may do there, granted by its owner.

`penstock manage prepare_database` grants and proves; an app says what its tables are in its
AppConfig. Where connections begin is `connection`, and which pool they come from `pools`.
"""
