"""Who may call is decided by a root secret alone; nobody makes another's credential."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.credential import (
    ENDED_VARIABLE,
    NAME,
    ROLES,
    ROOT_BEFORE_VARIABLE,
    ROOT_VARIABLE,
    Role,
    ServiceAuthenticator,
    ServiceIdentity,
    callers_of,
    issue,
)

pytestmark = pytest.mark.unit
ROOT, OTHER = "root-of-a-test-0123456789", "another-root-0123456789"

callers = st.builds(
    ServiceIdentity,
    st.sampled_from(ROLES),
    st.from_regex(NAME, fullmatch=True),
    st.integers(1, 999_999),
)


def shown(caller: ServiceIdentity, root: str = ROOT) -> str:
    return f"Bearer {issue(root, caller)}"


def told(root: str = ROOT, before: str = "", ended: str = "") -> dict[str, str]:
    return {ROOT_VARIABLE: root, ROOT_BEFORE_VARIABLE: before, ENDED_VARIABLE: ended}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, ROOT_VARIABLE),
        (told("short"), ROOT_VARIABLE),
        (told(before="short"), ROOT_BEFORE_VARIABLE),
        (told(ended="gateway.eu-1"), ENDED_VARIABLE),
    ],
)
def test_what_is_set_wrong_is_named(environ: dict[str, str], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        callers_of(environ)


@given(callers)
def test_who_shows_the_credential_that_was_issued_is_known(caller: ServiceIdentity) -> None:
    assert ServiceAuthenticator((ROOT,)).find(shown(caller)) == caller
    assert ServiceAuthenticator((OTHER, ROOT)).find(shown(caller)) == caller
    assert ServiceAuthenticator((OTHER,)).find(shown(caller)) is None
    assert ServiceAuthenticator((ROOT,), [caller]).find(shown(caller)) is None


@given(callers, callers)
def test_no_credential_is_another_callers(one: ServiceIdentity, other: ServiceIdentity) -> None:
    mac = issue(ROOT, one).rpartition(".")[2]
    assert (ServiceAuthenticator((ROOT,)).find(f"Bearer {other}.{mac}") is None) == (one != other)


@given(callers, st.integers(0, 200), st.characters(codec="utf-8"))
def test_a_letter_changed_is_nobodys(caller: ServiceIdentity, place: int, letter: str) -> None:
    header = shown(caller)
    place %= len(header)
    changed = header[:place] + letter + header[place + 1 :]
    assert (ServiceAuthenticator((ROOT,)).find(changed) is None) == (changed != header)


@given(st.text())
def test_whatever_is_shown_is_answered(header: str) -> None:
    assert ServiceAuthenticator((ROOT,)).find(header) is None


@pytest.mark.parametrize(
    "told", ["", "gateway", "gateway.a", "gateway.a.0", "gateway.A.1", "gateway..1", "root.a.1"]
)
def test_what_names_nobody_says_what_was_wanted(told: str) -> None:
    with pytest.raises(ValueError, match=r"wanted such as gateway\.eu-1\.2"):
        ServiceIdentity.read(told)
    role, _, name = told.partition(".")
    with pytest.raises(ValueError, match="wanted such as"):
        issue(ROOT, ServiceIdentity(cast(Role, role), name, 0))


def test_a_credential_is_changed_without_a_moment_of_none() -> None:
    old, new = ServiceIdentity("gateway", "eu-1", 1), ServiceIdentity("gateway", "eu-1", 2)
    both, after = callers_of(told()), callers_of(told(ended="gateway.eu-1.1, gateway.b.7"))
    assert (both.find(shown(old)), both.find(shown(new))) == (old, new)
    assert (after.find(shown(old)), after.find(shown(new))) == (None, new)


@given(callers, st.lists(st.integers(1, 20), max_size=4))
def test_a_number_ends_with_those_before_it_and_with_nobody_elses(
    caller: ServiceIdentity, ended: list[int]
) -> None:
    known = callers_of(told(ended=",".join(str(caller._replace(number=one)) for one in ended)))
    for number in range(1, 22):
        one = caller._replace(number=number)
        assert (known.find(shown(one)) is None) == (number <= max(ended, default=0))
    other = caller._replace(name="a-" + caller.name[:30], number=1)
    assert known.find(shown(other)) == other


def test_so_is_the_root() -> None:
    caller = ServiceIdentity("gateway", "eu-1")
    both, after = callers_of(told(OTHER, ROOT)), callers_of(told(OTHER))
    assert both.find(shown(caller)) == both.find(shown(caller, OTHER)) == caller
    assert (after.find(shown(caller)), after.find(shown(caller, OTHER))) == (None, caller)
