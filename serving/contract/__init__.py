"""What crosses between the planes: small frozen records, and the few pure functions both share.

Only the standard library and msgspec are imported here. `docs/architecture.md` shows who speaks
which.
"""

SCHEMA = 2
"""The version that every record carries; a reader refuses records newer than it knows."""
