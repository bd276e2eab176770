"""Clients' languages: what a body may hold, and how an answer, its usage and its errors are told.

Nothing reaches an engine except through a dialect's closed types.
"""
