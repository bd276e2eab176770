"""The edges of the door: where it sends people, what it does while Redis is away, what stays."""

import pytest
from django.test import Client

from control.accounts.login_attempts import PAIR
from control.accounts.models import User
from control.cache import CircuitOpen
from tests.fixtures.redis_server import RedisServer
from tests.fixtures.signing_in import HOME, LOGIN, PASSWORD, browser, is_in, sign_in, signed_in

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db,
    pytest.mark.usefixtures("moment"),  # no window ends meanwhile
]
ELSEWHERE = [
    "//evil.example/",
    "///evil.example/",
    "/\\evil.example/",
    "\\\\evil.example/",
    "https:evil.example",
    "https:///evil.example",
    "https://evil.example/",
    "https://evil.example@127.0.0.1:1/",
    "http://localhost/",
    "https://127.0.0.1:1/overview",
    "http://testserver/",
    "javascript:alert(1)",
    " //evil.example/",
    "\x08//evil.example/",
    "/\t/evil.example/",
    "data:text/html,x",
]


@pytest.mark.parametrize("target", ELSEWHERE)
def test_nobody_is_sent_to_another_place(ada: User, target: str) -> None:
    signing_in = browser().post(LOGIN, {"login": ada.email, "password": PASSWORD, "next": target})
    proving = signed_in(ada.email).post(
        "/accounts/reauthenticate/", {"password": PASSWORD, "next": target}
    )
    leaving = signed_in(ada.email).post("/accounts/logout/", {"next": target})
    inside = signed_in(ada.email).get(LOGIN, {"next": target})
    for reply in (signing_in, proving, leaving, inside):
        assert (reply.status_code, reply.headers["location"]) in {
            (302, "/"),
            (302, "/accounts/login/"),
        }, reply.headers["location"]


def test_pages_of_the_console_are_gone_on_to(ada: User) -> None:
    form = {"login": ada.email, "password": PASSWORD, "next": "/x/api-keys?page=2"}
    assert browser().post(LOGIN, form).headers["location"] == "/x/api-keys?page=2"


def doors_work(email: str) -> None:
    """Try every door; nothing fails, and wrong passwords are still counted."""
    client = browser("203.0.113.5")
    statuses = [sign_in(client, email, "wrong").status_code for _ in range(PAIR.amount + 1)]
    assert statuses == [200] * PAIR.amount + [429]
    assert client.post("/accounts/login/trust-device/", {"email": email}).status_code == 200
    assert client.post("/accounts/password/reset/", {"email": email}).status_code == 302
    form = {"email": "eve@acme.example", "password1": PASSWORD}
    assert client.post("/accounts/signup/", form).status_code == 302
    own = signed_in(email)
    assert own.get("/api/v1/organizations").status_code == 200
    assert own.get("/accounts/sessions/").status_code == 200


@pytest.mark.parametrize("trouble", ["stop", "freeze", "refuse_writes"])
def test_without_redis_every_door_works(
    ada: User, redis: RedisServer, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "freeze":
        monkeypatch.setattr("control.cache.WAIT_SECONDS", 0.25)
    signed_in(ada.email).post("/accounts/logout/")
    getattr(redis, trouble)()
    doors_work(ada.email)
    assert CircuitOpen.until > 0


def test_redis_may_go_and_come_between_two_tries(ada: User, redis: RedisServer) -> None:
    client = browser("203.0.113.5")
    for turn in range(4):
        if turn % 2:
            redis.start()
        else:
            redis.stop()
        CircuitOpen.until = 0.0
        assert sign_in(client, ada.email, "wrong").status_code == 200
    assert sign_in(client, ada.email).status_code == 302


def test_whatever_is_kept_in_redis_ends(ada: User, redis: RedisServer) -> None:
    doors_work(ada.email)
    keys = redis.client.keys("*")
    assert len(keys) > 5
    assert {key: redis.client.ttl(key) for key in keys if redis.client.ttl(key) < 0} == {}


def test_a_flood_that_is_refused_leaves_nothing_more(ada: User, redis: RedisServer) -> None:
    doors_work(ada.email)
    before = redis.client.dbsize()
    thief = browser("203.0.113.5")
    assert {sign_in(thief, ada.email, f"wrong {n}").status_code for n in range(3)} == {429}
    assert redis.client.dbsize() == before


def test_a_link_for_a_device_signs_nobody_in_and_names_no_stranger(ada: User) -> None:
    client: Client = browser(HOME)
    for forged in ("x", "a:b:c", "eyJhIjoiYiJ9:1:forged", "%00", "é"):
        reply = client.get(f"/accounts/login/trust-device/{forged}/")
        assert reply.status_code in (302, 404)
        assert "penstock_device" not in reply.cookies
    assert not is_in(client)
