"""Prompts as chains of blocks, and what is remembered of them."""

from hypothesis import given
from hypothesis import strategies as st

from serving.pool.pool import Pool
from serving.pool.prefix_history import (
    BLOCK_BYTES,
    BLOCKS_MAX,
    FORGET_PART,
    SEEN_MAX,
    Blocks,
    PrefixHistory,
    PromptPrefix,
    blocks_of,
)
from serving.pool.slot_request import SlotRequest
from tests.fixtures import catalog

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


SENT = st.lists(st.builds(PromptPrefix, st.sampled_from("abc"), PROMPT), max_size=30)


class Model:
    """What each tenant was sent, the last first, less what the largest gave up."""

    def __init__(self) -> None:
        self.sent: dict[str, list[int]] = {}

    def record(self, prefix: PromptPrefix) -> None:
        before = self.sent.get(prefix.tenant_id, [])
        self.sent[prefix.tenant_id] = [
            *prefix.blocks,
            *(block for block in before if block not in prefix.blocks),
        ]

    def cut(self, tenant_id: str, blocks: int) -> None:
        self.sent[tenant_id] = self.sent.get(tenant_id, [])[:blocks]


@given(st.integers(1, 90), SENT, PROMPT)
def test_each_tenant_keeps_what_it_was_sent_last_and_the_largest_give_up_what_is_too_much(
    most: int, sent: list[PromptPrefix], asked: Blocks
) -> None:
    seen, model = PrefixHistory(most), Model()
    for prefix in sent:
        model.record(prefix)
        before = {tenant_id: len(known) for tenant_id, known in model.sent.items()}
        seen.record(prefix)
        after = {tenant_id: len(seen._of.get(tenant_id, ())) for tenant_id in before}
        assert sum(after.values()) == len(seen) <= most
        losers = [tenant_id for tenant_id, blocks in after.items() if blocks < before[tenant_id]]
        if losers:
            assert len(seen) >= int(most * (1 - FORGET_PART))
            assert min(after[one] for one in losers) >= max(after.values()) - 1
        for tenant_id, blocks in after.items():
            model.cut(tenant_id, blocks)
            assert set(seen._of.get(tenant_id, ())) == set(model.sent[tenant_id])
    for tenant_id in "abc":
        known = [block in model.sent.get(tenant_id, ()) for block in asked]
        count = seen.count(PromptPrefix(tenant_id, asked))
        assert count == (known.index(False) if False in known else len(known))
        assert sum(known) == count, "a block is known without those before it"


def test_a_flood_of_new_prompts_leaves_what_a_neighbour_was_sent() -> None:
    seen = PrefixHistory()
    neighbour = PromptPrefix("neighbour", tuple(range(BLOCKS_MAX)))
    seen.record(neighbour)
    for start in range(BLOCKS_MAX, 100 * BLOCKS_MAX, BLOCKS_MAX):
        seen.record(PromptPrefix("flood", tuple(range(start, start + BLOCKS_MAX))))
    assert seen.count(neighbour) == BLOCKS_MAX
    assert len(seen) > SEEN_MAX * (1 - 2 * FORGET_PART)


async def test_a_conversation_finds_its_replica_while_another_floods_the_pool() -> None:
    pool = Pool("dep")
    records = [catalog.replica(f"http://r{number}", number) for number in range(2)]
    pool.set_replicas({record.replica_id: record for record in records})

    async def replica_of(tenant_id: str, blocks: Blocks) -> str:
        async with pool.slot(SlotRequest(tenant_id, prefix_blocks=blocks)) as slot:
            return slot.replica.record.replica_id

    place = await replica_of("neighbour", CHAINS[0])
    for number in range(1, 4 * SEEN_MAX // BLOCKS_MAX):
        new = tuple(range(number * 1_000, number * 1_000 + BLOCKS_MAX))
        await replica_of("flood", new)
    pool.choices.clear()
    assert await replica_of("neighbour", CHAINS[0]) == place
    assert pool.choices == {"affinity": 1}


def test_a_cache_that_is_gone_is_forgotten() -> None:
    seen = PrefixHistory()
    seen.record(PromptPrefix("a", CHAINS[0]))
    seen.clear()
    assert (seen.count(PromptPrefix("a", CHAINS[0])), len(seen)) == (0, 0)
