"""The base of the management API: errors, pages, idempotency, throttling and its OpenAPI document.
Each package's views stand in its own `api.py`."""
