"""WhiteNoise for ASGI: its own middleware is synchronous, which would hold a thread for each long
poll and each stream."""

from collections.abc import Awaitable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile


class StaticFiles(WhiteNoiseMiddleware):
    """Answers with static files; they are small and read whole."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Return a static file, or what the rest of Django answers (awaitable if that is)."""
        file = self._file(request)
        if file is None:
            return self.get_response(request)
        return (
            self._at_once(file, request) if iscoroutinefunction(self) else self.serve(file, request)
        )

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        """Return the file, or that it has not changed, as WhiteNoise decides."""
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file:
                content = found.file.read()
        response = HttpResponse(content, status=int(found.status))
        del response["content-type"]
        for name, value in found.headers:
            response[name] = value
        return response

    async def _at_once(self, file: StaticFile, request: HttpRequest) -> HttpResponse:
        return self.serve(file, request)

    def _file(self, request: HttpRequest) -> StaticFile | None:
        if self.autorefresh:
            return self.find_file(request.path_info)
        return self.files.get(request.path_info)
