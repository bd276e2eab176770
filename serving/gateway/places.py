"""Which of the deployments that a job may run on it goes to: all that are ready take part."""

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from itertools import chain

from serving.contract.prompt import PromptBound
from serving.contract.records import DeploymentRecord
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.principals import Principal
from serving.pool.pool import Pool, Slot
from serving.pool.prefix_history import Blocks, blocks_of
from serving.pool.router import choose
from serving.pool.slot_request import SlotRequest

Place = tuple[DeploymentRecord, Pool]


def blocks_of_prompt(principal: Principal, job: InferenceRequest, pools: Iterable[Pool]) -> Blocks:
    """Return what the job's prompt begins with; nothing where there is one replica to go to, or
    none that remembers.

    The salt is one that nobody outside knows, the organization's (I7).
    """
    if sum(len(pool.replicas) for pool in pools if pool.has_prefix_cache) < 2:
        return ()
    return blocks_of(job.work.fields, principal.cache_salt + job.model.variant_id)


def in_order(
    places: Sequence[Place], job: InferenceRequest, blocks: Blocks = ()
) -> tuple[Place, ...]:
    """Return where a job goes, and then where it may go too. What a grammar is compiled for goes on
    only where the same engine has the same weights: that is where it is looked at."""
    home = best(places, job, blocks)
    others = [place for place in places if place is not home]
    if job.work.grammars is not None:
        others = [place for place in others if _compiles_alike(place[0], home[0])]
    return home, *others


def slot_of(
    places: Sequence[Place], slot_request: SlotRequest, avoid: Collection[str] = ()
) -> Slot:
    """Return a slot where a job goes, or where it may go too if there is one there before."""
    (_, pool), *others = places
    return pool.slot(slot_request, avoid, [other for _, other in others])


def bound_of(places: Iterable[Place]) -> PromptBound:
    """Return how many tokens a prompt has at most, wherever of these a job goes."""
    return reduce(PromptBound.or_wider, (pool.prompt_bound for _, pool in places))


def deployment_of(places: Sequence[Place], slot: Slot) -> DeploymentRecord:
    """Return what a slot is held of."""
    return next(deployment for deployment, pool in places if pool is slot.pool)


def _compiles_alike(one: DeploymentRecord, other: DeploymentRecord) -> bool:
    return (one.engine, one.weights) == (other.engine, other.weights)


def best(places: Sequence[Place], job: InferenceRequest, blocks: Blocks = ()) -> Place:
    """Return where a job goes: of the deployments with room one's own before shared ones, and of
    several that which has the replica to take. Where none has room, the one with the shortest wait.
    """
    if len(places) == 1:
        return places[0]
    open_ = [place for place in places if place[1].has_room(job.tier, job.width)]
    if not open_:
        return min(places, key=lambda place: (place[1].load, place[0].dedicated_to is None))
    among = [place for place in open_ if place[0].dedicated_to is not None] or open_
    replicas = chain.from_iterable(pool.replicas.values() for _, pool in among)
    choice = choose(replicas, among[0][1].now, sequences=job.width, blocks=blocks)
    if choice is None:
        raise RuntimeError("a pool has room, and none of its replicas")
    deployment_id = choice.replica.record.deployment_id
    return next(place for place in among if place[0].deployment_id == deployment_id)
