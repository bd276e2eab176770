"""A replica's tokens follow from the root secret, and each gateway reads its own copy alone."""

from hypothesis import given
from hypothesis import strategies as st

from serving.contract.replica_token import ReplicaTokens, credential_mark, seal, unseal

SECRETS = st.text(min_size=16, max_size=40)
OLD, NEW = "root-secret-of-before", "root-secret-of-today-"


def test_tokens_differ_by_role_replica_and_root() -> None:
    tokens = ReplicaTokens([NEW, OLD])
    made = {tokens.token(role, id_) for role in ("gateway", "fleet") for id_ in ("r1", "r2")}
    assert len(made | {ReplicaTokens([OLD]).token("gateway", "r1")}) == 5
    assert not any(NEW in token for token in made)


def test_a_replica_of_an_earlier_root_is_found_by_its_mark() -> None:
    before = ReplicaTokens([OLD])
    token = before.token("fleet", "r1")
    assert ReplicaTokens([NEW, OLD]).token("fleet", "r1", before.mark) == token
    assert ReplicaTokens([NEW]).token("fleet", "r1", before.mark) != token


@given(credential=SECRETS, other=SECRETS)
def test_a_sealed_token_is_read_with_the_credential_alone(credential: str, other: str) -> None:
    token = ReplicaTokens([NEW]).token("gateway", "r1")
    sealed = seal(credential, "r1", token)
    assert sealed != token
    assert unseal(credential, "r1", sealed) == token
    assert unseal(credential, "r2", sealed) != token
    if other != credential:
        assert unseal(other, "r1", sealed) != token
        assert credential_mark(other) != credential_mark(credential)


@given(sealed=st.text(max_size=60))
def test_what_was_never_sealed_opens_nothing(sealed: str) -> None:
    assert unseal("a-credential", "r1", sealed) != ReplicaTokens([NEW]).token("gateway", "r1")
