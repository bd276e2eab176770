"""Addresses that lead nowhere, whatever the view, and cookies that are nobody's: a NUL character is
in no id and no name, and PostgreSQL takes none."""

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware


@sync_and_async_middleware
def refuse_null_characters(get_response: Any) -> Any:
    """Answer 404 to an address with a NUL character in its path or query."""
    if iscoroutinefunction(get_response):

        async def respond_async(request: HttpRequest) -> HttpResponseBase:
            _check(request)
            return await get_response(request)

        return respond_async

    def respond(request: HttpRequest) -> HttpResponseBase:
        _check(request)
        return get_response(request)

    return respond


def _check(request: HttpRequest) -> None:
    if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
        raise Http404("An address holds no NUL character.")
    # Cookies may spell one in quotes; ours hold none, so such a one counts for nothing.
    for name in [name for name, value in request.COOKIES.items() if "\0" in value]:
        del request.COOKIES[name]
