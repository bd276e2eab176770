"""Prompts as chains of blocks, and what is remembered of them."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from serving.pool.prefix_history import BLOCK_BYTES, BLOCKS_MAX, Blocks, PrefixHistory, blocks_of

CHAINS = [tuple(range(start, start + 40)) for start in (0, 100, 200)]
CHAINS += [CHAINS[0][:10] + tuple(range(300, 320)), CHAINS[0][:25] + tuple(range(400, 415))]
PROMPT = st.tuples(st.sampled_from(CHAINS), st.integers(0, 40)).map(lambda of: of[0][: of[1]])


@given(st.binary(max_size=4_000), st.binary(max_size=2_000))
def test_a_turn_begins_with_the_blocks_of_the_turn_before(said: bytes, more: bytes) -> None:
    before = blocks_of((said,), "salt")
    assert len(before) == len(said) // BLOCK_BYTES
    assert blocks_of((said + more,), "salt")[: len(before)] == before


@given(st.binary(min_size=BLOCK_BYTES, max_size=4_000), st.integers(min_value=0))
def test_a_block_stands_for_all_that_comes_before_it(said: bytes, place: int) -> None:
    place %= len(said)
    other = said[:place] + bytes([said[place] ^ 1]) + said[place + 1 :]
    same, first = blocks_of((said,), "salt"), place // BLOCK_BYTES
    changed = blocks_of((other,), "salt")
    assert changed[:first] == same[:first]
    assert not set(changed[first:]) & set(same[first:])


@given(st.binary(min_size=BLOCK_BYTES, max_size=4_000))
def test_no_two_organizations_share_a_block(said: bytes) -> None:
    assert not set(blocks_of((said,), "one")) & set(blocks_of((said,), "another"))


def test_of_a_large_prompt_the_beginning_counts() -> None:
    piece = bytes(range(256)) * 512
    whole = blocks_of((piece,), "salt")
    assert len(whole) == BLOCKS_MAX
    assert blocks_of((piece, piece), "salt") == whole == blocks_of((piece * 2,), "salt")


@given(st.integers(1, 60), st.lists(PROMPT, max_size=30), PROMPT)
def test_what_is_remembered_is_what_was_sent_last_and_bounded(
    most: int, sent: list[Blocks], asked: Blocks
) -> None:
    seen, model = PrefixHistory(most), OrderedDict[int, None]()
    for blocks in sent:
        seen.record(blocks)
        for block in reversed(blocks):
            model.pop(block, None)
            model[block] = None
        while len(model) > most:
            model.popitem(last=False)
        assert len(seen) == len(model) <= most
    known = [block in model for block in asked]
    assert seen.count(asked) == (known.index(False) if False in known else len(known))
    assert sum(known) == seen.count(asked), "a block is known without those before it"


def test_a_cache_that_is_gone_is_forgotten() -> None:
    seen = PrefixHistory()
    seen.record(CHAINS[0])
    seen.clear()
    assert (seen.count(CHAINS[0]), len(seen)) == (0, 0)
