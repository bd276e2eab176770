"""How passwords are kept."""

import pytest
from django.contrib.auth.hashers import check_password, make_password

from control.accounts.models import User
from tests.fixtures.signing_in import PASSWORD, browser, sign_in

OURS = "control.accounts.models.Argon2Hasher"
PBKDF2 = "django.contrib.auth.hashers.PBKDF2PasswordHasher"
DJANGOS_FIGURES = "django.contrib.auth.hashers.Argon2PasswordHasher"
KEPT = "argon2$argon2id$v=19$m=19456,t=2,p=1$"


@pytest.mark.parametrize("password", [PASSWORD, "é" * 300, "a\0b"])
def test_a_password_is_its_own_and_no_others(settings, password: str) -> None:
    settings.PASSWORD_HASHERS = [OURS, PBKDF2]
    kept = make_password(password)
    assert kept.startswith(KEPT)
    assert check_password(password, kept)
    assert not check_password(f"{password}.", kept)


@pytest.mark.django_db
@pytest.mark.parametrize("before", [PBKDF2, DJANGOS_FIGURES])
def test_passwords_from_before_are_hashed_anew_at_sign_in(settings, ada: User, before: str) -> None:
    settings.PASSWORD_HASHERS = [before]
    ada.set_password(PASSWORD)
    ada.save()
    settings.PASSWORD_HASHERS = [OURS, PBKDF2]
    assert sign_in(browser(), ada.email).status_code == 302
    ada.refresh_from_db()
    assert ada.password.startswith(KEPT)
