"""Django's settings under test: the product's own, booted with the tests' environment."""

import tests.support.environment  # noqa: F401  (first: the product refuses to boot without)
from control.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
SERVESTATIC_AUTOREFRESH = True
"""Each of Django's test clients builds the middleware anew: static files are looked for when one is
asked for, and not all of them each time."""
