"""A model with its variants, deployments and prices, made of what lies in a folder."""

from collections.abc import Iterable

from django.db import transaction
from django.utils import timezone

from control.catalog import selectors, services
from control.catalog.models import Deployment, Model, Task, Variant
from control.permissions import Actor
from control.pricing import selectors as prices
from control.pricing import services as pricing
from infra.demo.weights import Weights

CENTS_PER_MILLION = {"bf16": (15, 60), "int8": (10, 40), "int4": (8, 32)}
"""Input and output by precision; cached input is half of input. Others cost what bf16 does."""
EMBEDDING_CENTS_PER_MILLION = 2, 0
"""Nothing is generated."""
NANOS_PER_CENT = 10_000_000
BOOK_NAME = "Opening prices"
AHEAD = "The platform was just set up: its replicas start after the catalog is written."
"""Why the demo's variants are published before they run."""


@transaction.atomic
def seed_model(
    actor: Actor,
    *,
    public_id: str,
    engine: str,
    weights: Iterable[Weights],
    task: str = Task.GENERATE,
    replicas: int = 1,
) -> Deployment:
    """Make a model of weights: the first variant is deployed with `replicas`, the others not yet.

    A variant that is there takes over the place of its weights and a newer quality report.
    Returns the first variant's deployment.
    """
    model = selectors.model_by_public_id(public_id) or services.create_model(
        actor=actor, public_id=public_id, name=public_id.rpartition("/")[2], task=task
    )
    variants = [_seed_variant(actor, model, each) for each in weights]
    deployments = [
        _seed_deployment(actor, variant, engine, replicas_min=replicas if number == 0 else 0)
        for number, variant in enumerate(variants)
    ]
    _seed_prices(actor, variants)
    for variant in variants:
        if variant.parent_id is None or selectors.latest_report(variant) is not None:
            services.publish_variant(actor=actor, variant=variant, override_reason=AHEAD)
    return deployments[0]


def _seed_variant(actor: Actor, model: Model, weights: Weights) -> Variant:
    facts = {
        "weights": weights.location,
        "context_tokens": weights.context_tokens,
        "output_tokens_max": weights.output_tokens_max,
        "vocabulary_size": weights.vocabulary_size,
        "dimensions": weights.hidden_size if model.makes_embeddings else None,
        "size_bytes": weights.size_bytes,
    }
    variant = selectors.variant_of(model, weights.precision)
    if variant is not None:
        variant = services.update_variant(actor=actor, variant=variant, changes=facts)
    else:
        parent = selectors.variant_of(model, weights.parent) if weights.parent else None
        variant = services.create_variant(
            actor=actor,
            model=model,
            precision=weights.precision,
            parent=parent,
            parameter_count=parent.parameter_count if parent else weights.parameter_count,
            **facts,
        )
    latest = selectors.latest_report(variant)
    if weights.quality and (latest is None or latest.document != weights.quality):
        services.record_quality(actor=actor, variant=variant, document=weights.quality)
    return variant


def _seed_deployment(
    actor: Actor, variant: Variant, engine: str, *, replicas_min: int
) -> Deployment:
    known = selectors.deployments(variant).first()
    if known is None:
        return services.create_deployment(
            actor=actor, variant=variant, engine=engine, replicas_min=replicas_min
        )
    return services.update_deployment(actor=actor, deployment=known, changes={"engine": engine})


def _seed_prices(actor: Actor, variants: Iterable[Variant]) -> None:
    """Price what has no price yet, in a book of its own."""
    known = prices.prices_in_force(None, timezone.now())
    missing = [variant for variant in variants if variant.id not in known]
    if not missing:
        return
    book = pricing.draft_book(actor=actor, name=BOOK_NAME)
    for variant in missing:
        input_cents, output_cents = _cents_per_million(variant)
        input_nanos = input_cents * NANOS_PER_CENT
        pricing.set_price(
            actor=actor,
            book=book,
            variant=variant,
            input_nanos=input_nanos,
            cached_input_nanos=input_nanos // 2,
            output_nanos=output_cents * NANOS_PER_CENT,
        )
    pricing.publish_book(actor=actor, book=book)


def _cents_per_million(variant: Variant) -> tuple[int, int]:
    if variant.model.makes_embeddings:
        return EMBEDDING_CENTS_PER_MILLION
    return CENTS_PER_MILLION.get(variant.precision, CENTS_PER_MILLION["bf16"])
