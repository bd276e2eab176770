"""Verdicts that last are kept, in bounds of number and of time."""

import pytest

from serving import grammar_verdicts
from serving.contract.grammar import GrammarVerdict, Verdict
from serving.grammar_verdicts import LASTING, GrammarVerdicts

GOOD = GrammarVerdict("good")
A, B, C = ("org_a", "a"), ("org_a", "b"), ("org_a", "c")
Key = tuple[str, str]


@pytest.mark.parametrize("said", ["good", "refused", "too_complex", "busy", "unknown", "unchecked"])
def test_what_would_be_the_same_again_is_kept(said: Verdict) -> None:
    known = GrammarVerdicts[Key]()
    known.keep(A, GrammarVerdict(said))
    kept = GrammarVerdict(said) if said in LASTING else None
    assert (known.find(A), known.last(A)) == (kept, kept)
    assert known.find(B) is None
    assert len(known) == (kept is not None)


def test_the_least_recently_wanted_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_verdicts, "VERDICTS_MAX", 2)
    known = GrammarVerdicts[Key]()
    for key in (A, B):
        known.keep(key, GOOD)
    known.find(A)
    known.keep(C, GOOD)
    assert [key for key in (A, B, C) if known.find(key)] == [A, C]
    known.keep(C, GOOD)
    assert len(known) == 2


def test_an_organization_with_many_gives_up_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_verdicts, "VERDICTS_MAX", 10)
    known = GrammarVerdicts[Key]()
    neighbours = [("org_a", "1"), ("org_a", "2"), ("org_b", "1")]
    for key in neighbours:
        known.keep(key, GOOD)
    for number in range(100):
        known.keep(("org_c", str(number)), GOOD)
        assert len(known) <= 10
    assert all(known.find(key) for key in neighbours)
    assert known.find(("org_c", "99"))


def test_of_many_organizations_with_one_verdict_some_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar_verdicts, "VERDICTS_MAX", 3)
    known = GrammarVerdicts[Key]()
    for number in range(5):
        known.keep((f"org_{number}", ""), GOOD)
    assert len(known) == len(known._kept) == 3


def test_a_verdict_is_asked_for_anew_after_a_while() -> None:
    now = [0.0]
    known = GrammarVerdicts[Key](10.0, lambda: now[0])
    known.keep(A, GOOD)
    now[0] = 9.9
    assert known.find(A) is not None
    now[0] = 10.0
    assert known.find(A) is None
    assert known.last(A) == GOOD
    known.keep(A, GrammarVerdict("refused"))
    assert known.find(A) == GrammarVerdict("refused")
