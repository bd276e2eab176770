"""Follows a numbered feed of records: control's changes, or the fleet's replicas.

Gateway and fleet call it. Start reading at `follower.py`; `mirror.py` holds what is known, and
`state_store.py` keeps it on disk.
"""
