"""The journal entries that docs/billing/overview.md lists are the rows of the table of causes."""

from collections import Counter
from pathlib import Path

from billing.ledger.causes import CHART_OF_ACCOUNTS, RULES, AccountKind, PostingRule

PAGE = Path(__file__).parents[3] / "docs" / "billing" / "overview.md"
HEAD = "| cause | what happens | debit | credit | funds |"


def account(kind: AccountKind) -> str:
    """Return what accountants call an account, as it stands in a sentence."""
    return str(kind.label).lower()


def funds(rule: PostingRule) -> str:
    """Return what the page says of what a rule does to what funds a balance."""
    if {*rule.credits, *rule.debits} <= {*rule.funds}:
        return "no"  # what leaves one account of the balance enters another
    adds, takes = (bool({*side} & {*rule.funds}) for side in (rule.credits, rule.debits))
    if adds and takes:
        return "either"
    return "adds" if adds else "takes" if takes else "no"


def test_every_rule_is_a_row_and_every_row_a_rule() -> None:
    lines = PAGE.read_text().partition(HEAD)[2].splitlines()[2:]
    table = lines[: lines.index("")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    documented = Counter((cause, debit, credit, sign) for cause, _, debit, credit, sign in rows)
    assert documented == Counter(
        (
            str(rule.cause.label),
            ", ".join(map(account, rule.debits)),
            ", ".join(map(account, rule.credits)),
            funds(rule),
        )
        for rule in RULES
    )


def test_every_account_is_explained_with_its_class() -> None:
    lines = (
        PAGE.read_text().partition("| account | class |")[2].partition("\n\n")[0].splitlines()[2:]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    documented = {name: of for names, of, _ in rows for name in names.split(", ")}
    assert documented == {
        account(kind): str(of.label).lower() for kind, of in CHART_OF_ACCOUNTS.items()
    }
    assert CHART_OF_ACCOUNTS.keys() == set(AccountKind)
