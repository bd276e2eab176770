"""What is told of an address where nothing is: mostly its base is wrong by `/v1`."""

from collections.abc import Iterable

BASE = "/v1"
PATH_CHARACTERS_MAX = 200


def nothing_at(path: str, routes: Iterable[str]) -> str:
    """Return the message: which address, and which one was likely meant."""
    known = ("/v1/models", *routes)
    told = f"There is nothing at '{path[:PATH_CHARACTERS_MAX]}'."
    meant = [route for route in known if path.endswith(route.removeprefix(BASE))]
    if not meant:
        return f"{told} There are {', '.join(known)}."
    route = max(meant, key=len)
    before = path.removesuffix(route.removeprefix(BASE))
    fix = "'/v1' is missing: put it at the end of the base URL"
    if before.endswith(BASE):
        fix = f"Leave '{before.removesuffix(BASE)[:PATH_CHARACTERS_MAX]}' out of the base URL"
    return f"{told} Did you mean '{route}'? {fix}."
