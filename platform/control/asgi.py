"""The ASGI applications of control: `application` is the public one."""

import os

from django.core.asgi import get_asgi_application

from control import listeners

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")

_everything = get_asgi_application()
application = listeners.public(_everything)
internal_application = listeners.internal(_everything)
