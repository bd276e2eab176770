"""Verdicts that last are kept, in bounds of number and of time."""

import pytest

from serving import verdicts
from serving.contract.grammar import GrammarVerdict, Verdict
from serving.verdicts import LASTING, Verdicts


@pytest.mark.parametrize("said", ["good", "refused", "too_complex", "busy", "unknown", "unchecked"])
def test_what_would_be_the_same_again_is_kept(said: Verdict) -> None:
    known = Verdicts[str]()
    known.keep("a", GrammarVerdict(said))
    assert known.find("a") == (GrammarVerdict(said) if said in LASTING else None)
    assert known.find("b") is None


def test_the_least_recently_wanted_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "VERDICTS_MAX", 2)
    known = Verdicts[str]()
    for key in "ab":
        known.keep(key, GrammarVerdict("good"))
    known.find("a")
    known.keep("c", GrammarVerdict("good"))
    assert [key for key in "abc" if known.find(key)] == ["a", "c"]


def test_a_verdict_is_asked_for_anew_after_a_while() -> None:
    now = [0.0]
    known = Verdicts[str](10.0, lambda: now[0])
    known.keep("a", GrammarVerdict("good"))
    now[0] = 9.9
    assert known.find("a") is not None
    now[0] = 10.0
    assert known.find("a") is None
    assert known.last("a") == GrammarVerdict("good")
    known.keep("a", GrammarVerdict("refused"))
    assert known.find("a") == GrammarVerdict("refused")
