"""The table of causes: each row balances, and the ledger is written by it alone."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.credit.models import Budget
from billing.credit.services.budgets import open_balance
from billing.ledger import causes
from billing.ledger.causes import CREDIT_KINDS, RULES, AccountKind, Cause, PostingRule, rule_of
from billing.ledger.integrity import CHECKS, run
from billing.ledger.models import Entry, Transaction
from billing.ledger.post import AccountNotInRule, Leg, Posting, UnbalancedTransaction, post_all
from tests.fixtures.usage import NOW, Customer

ROOT = Path(__file__).parents[3]
WRITER = "billing/ledger/post.py"
NAMES = {"grant": "grant_1", "invoice": "inv_1", "note": "cn_1", "key": "a:key:of its caller"}
NANOS = st.integers(1, 10**18)


def leg(kind: AccountKind, nanos: int, grant: int = 1) -> Leg:
    return Leg(kind, nanos, f"grant_{grant}" if kind in CREDIT_KINDS else "")


@st.composite
def movements(draw: st.DrawFn) -> tuple[PostingRule, list[Leg]]:
    """Any rule, some of its debits with an amount each, and some of its credits that share these.

    An account that a rule both debits and credits is on one side.
    """
    rule = draw(st.sampled_from(RULES))
    debited = draw(st.lists(st.sampled_from(rule.debits), min_size=1, unique=True))
    credited = [kind for kind in rule.credits if kind not in debited]
    if not credited:
        debited, credited = debited[:1], [kind for kind in rule.credits if kind != debited[0]]
    debits = [
        leg(kind, draw(NANOS), n) for kind in debited for n in draw(st.sampled_from([[1], [1, 2]]))
    ]
    total = sum(each.nanos for each in debits)
    shares = []
    for kind in credited[1:]:
        shares.append(leg(kind, -draw(st.integers(0, total))))
        total += shares[-1].nanos
    return rule, draw(st.permutations([*debits, *shares, leg(credited[0], -total)]))


def posting(rule: PostingRule, legs: list[Leg]) -> Posting:
    return Posting(rule, "org_1", legs, NAMES)


@given(movements())
def test_what_a_rule_allows_is_posted_as_it_is(movement: tuple[PostingRule, list[Leg]]) -> None:
    rule, legs = movement
    asked: Counter[tuple[AccountKind, str]] = Counter()
    for each in legs:
        asked[each.kind, each.grant_id] += each.nanos
    made = posting(rule, legs).legs
    assert sum(each.nanos for each in made) == 0
    assert all(each.nanos for each in made)
    assert {(kind, grant): nanos for kind, nanos, grant in made} == {
        account: nanos for account, nanos in asked.items() if nanos
    }


@given(movements(), st.data())
def test_what_a_rule_does_not_allow_is_refused(
    movement: tuple[PostingRule, list[Leg]], data: st.DataObject
) -> None:
    """A nano too much or too little, another account in a leg's place, all signs turned round."""
    rule, legs = movement
    place = data.draw(st.integers(0, len(legs) - 1))
    one = legs[place]
    off = data.draw(st.sampled_from([-1, 1]))
    with pytest.raises(UnbalancedTransaction):
        posting(rule, [*legs[:place], one._replace(nanos=one.nanos + off), *legs[place + 1 :]])
    others = set(AccountKind) - {*rule.debits, *rule.credits}
    other = leg(data.draw(st.sampled_from(sorted(others))), one.nanos)
    if one.nanos:
        with pytest.raises(AccountNotInRule):
            posting(rule, [*legs[:place], other, *legs[place + 1 :]])
    if not {*rule.debits} & {*rule.credits}:
        with pytest.raises(AccountNotInRule):
            posting(rule, [each._replace(nanos=-each.nanos) for each in legs])


@pytest.mark.integration
@pytest.mark.django_db
def test_all_rules_leave_sound_books(customer: Customer) -> None:
    """Each rule once, by all its accounts: the ledger is what was asked for, and sums to zero."""
    open_balance(customer.id)
    postings = []
    for n, rule in enumerate(RULES):
        credited = [kind for kind in rule.credits if kind not in rule.debits] or rule.credits[:1]
        debited = [kind for kind in rule.debits if kind not in credited]
        legs = [leg(kind, 10 * len(credited), n) for kind in debited]
        legs += [leg(kind, -10 * len(debited), n) for kind in credited]
        names = {"grant": f"grant_{n}", "invoice": str(n), "note": str(n), "key": str(n)}
        postings.append(Posting(rule, customer.id, legs, names))
    post_all(postings, now=NOW)
    assert Transaction.objects.count() == len(RULES)
    assert Entry.objects.count() == sum(len(each.legs) for each in postings)
    balance = Budget.objects.get(kind="balance")
    assert balance.funded_nanos == sum(each.funded_nanos for each in postings) != 0
    assert balance.limit_nanos == balance.funded_nanos
    of_credit = "No credit is spent twice"  # here it is drawn from grants that nobody gave
    broken = [check.sentence for check in CHECKS if not run(check).holds]
    assert [sentence for sentence in broken if not sentence.startswith(of_credit)] == []


def test_every_cause_has_a_row() -> None:
    declared = [each for each in vars(causes).values() if isinstance(each, PostingRule)]
    assert set(declared) == set(RULES)
    assert len(declared) == len(RULES)
    assert {rule.cause for rule in RULES} == set(Cause)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.cause} {rule.source}")
def test_a_source_tells_its_rule(rule: PostingRule) -> None:
    """What the books call a movement leads back to its row, or to one that is called the same."""
    names = NAMES | {"organization": "org_1", "transaction": "t1"}
    found = rule_of(rule.cause, rule.source_of(**names))
    assert found is not None
    read, filled_in = found
    assert (read.cause, read.source, read.title) == (rule.cause, rule.source, rule.title)
    assert filled_in == {name: names[name] for name in filled_in}
    assert rule.source_of(**filled_in) == rule.source_of(**names)


def test_a_source_of_no_rule_is_none() -> None:
    assert rule_of("usage", "usage of somebody") is None
    assert rule_of("tax", "usage:t1") is None


MODELS = {"Entry", "Transaction"}
WRITES = {"create", "bulk_create", "get_or_create", "update_or_create", "update", "save", "delete"}


def writes_in(path: Path) -> Iterator[str]:
    """Yield what a file of ours writes in the ledger: by its models, or by SQL of its own."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = " ".join(node.value.lower().split())
            if any(
                f"{verb} ledger_{table}" in words
                for verb in ("insert into", "update", "delete from", "copy")
                for table in ("entry", "transaction", "account")
            ):
                yield words
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).split(".")
            if called[0] in MODELS and (len(called) == 1 or called[-1] in WRITES):
                yield ast.unparse(node.func)


def test_nothing_but_post_writes_the_ledger() -> None:
    sources = [
        path
        for folder in ("billing", "platform/control", "web", "infra")
        for path in (ROOT / folder).rglob("*.py")
        if "migrations" not in path.parts and "simulation" not in path.parts
    ]
    wrote = {
        str(path.relative_to(ROOT)): found
        for path in sources
        if "ledger" in path.read_text() and (found := list(writes_in(path)))
    }
    assert wrote.keys() == {WRITER}
    assert wrote[WRITER] == [
        "Entry.objects.bulk_create", "Transaction.objects.bulk_create", "Entry", "Transaction",
    ]  # fmt: skip
