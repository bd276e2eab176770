"""PostgreSQL beyond Django's ORM: connections, pools, retries, the application's privileges, ids
and append-only tables. Any package above may use it."""
