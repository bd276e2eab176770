"""How waiting and devices are called where people read of them."""

import math
import re

from django.core.exceptions import ValidationError

REFUSED = "too_many_tries"
"""The code of the error that says when to try again; its parameters hold the `seconds`."""
BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "SamsungBrowser": "Samsung Internet",
    "Firefox": "Firefox",
    "FxiOS": "Firefox",
    "CriOS": "Chrome",
    "Chrome": "Chrome",
    "Version": "Safari",
}
"""By the word in a browser's name for itself that no earlier one has."""
SYSTEMS = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Android": "Android",
    "Windows": "Windows",
    "Mac OS X": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}
UNKNOWN_DEVICE = "An unknown device"


def waiting(seconds: int) -> str:
    """Return a time to wait in words, never shorter than it is."""
    if seconds < 90:
        return f"{seconds} second{'' if seconds == 1 else 's'}"
    return f"{math.ceil(seconds / 60)} minutes"


def refusal(of: str, seconds: int) -> ValidationError:
    """Return what a form says to who tried too often, with when to try again."""
    words = f"Too many wrong {of}. Try again in {waiting(seconds)}."
    return ValidationError(words, code=REFUSED, params={"seconds": seconds})


def device_name(user_agent: str) -> str:
    """Return what a person calls a device: Chrome on Linux."""
    words = set(re.findall(r"(\w+)/", user_agent))
    browser = next((name for word, name in BROWSERS.items() if word in words), "")
    system = next((name for word, name in SYSTEMS.items() if word in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    first = user_agent.split("/", maxsplit=1)[0].strip()
    return browser or system or (first if first.isprintable() and first else UNKNOWN_DEVICE)[:60]
