"""The door of the internal API: its secret, and records in and out. Each noun's calls stand in its
room, in `internal_api.py`."""
