"""Django's ASGI application, which gives the database connection back before it writes an answer:
else whoever does not read an answer would hold one of the pool's."""

from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http.response import HttpResponseBase

from control.database.pools import give_back_connections


class ControlHandler(ASGIHandler):
    """Writes answers without a database connection in hand."""

    async def send_response(self, response: HttpResponseBase, send: Any) -> None:
        """Give back what the views left open in the request's thread, then write."""
        await sync_to_async(give_back_connections, thread_sensitive=True)()
        await super().send_response(response, send)
