"""What crosses between the planes: small frozen records, and the few pure functions both share.

Every plane may import it; it imports the standard library and msgspec alone. Start reading at
`usage.py` and `lease.py`; `docs/architecture.md` shows which process sends which record.
"""

SCHEMA = 2
"""The version that every record carries; a reader refuses records newer than it knows."""
