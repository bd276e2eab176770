"""What the application's role may do in the database, granted and proved by its owner.

`manage.py prepare_database` is the one caller; an app says what its tables are in its AppConfig.
"""
