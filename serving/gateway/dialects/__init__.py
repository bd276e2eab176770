"""API formats: what a body may hold, and how a response, its usage and its errors are written.

Nothing reaches an engine except through the closed types here. The gateway calls it, by the table
in `routes.py`; start reading at `base.py`.
"""
