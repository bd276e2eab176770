"""What `DATABASES[…]["ENGINE"]` names: Django looks for it under this name."""

from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool

from control.db.pools import POOLS, kind_of_work


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes connections from the pool of the work at hand, and gives each back to its own."""

    @property
    def _connection_pools(self) -> dict[str, ConnectionPool]:
        return POOLS[kind_of_work.get()]
