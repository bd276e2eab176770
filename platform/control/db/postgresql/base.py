"""The database backend of `DATABASES[…]["ENGINE"]`; Django requires this module's name."""

from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool

from control.db.connection import POOLS, kind_of_work


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes each connection from the pool of the current kind of work and returns it there."""

    @property
    def _connection_pools(self) -> dict[str, ConnectionPool]:
        return POOLS[kind_of_work.get()]
