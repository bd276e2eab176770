"""Hashing of passwords: Argon2id at the least that OWASP allows (19 MiB, two passes).

That takes 20 ms of a core here; Django's own figures want 100 MiB and eight threads of each
sign-in, and its PBKDF2 took 240 ms, so that two people who signed in at once waited half a second.
"""

from django.contrib.auth.hashers import Argon2PasswordHasher


class Argon2Hasher(Argon2PasswordHasher):
    """Django's, with figures of ours."""

    memory_cost = 19_456
    time_cost = 2
    parallelism = 1
