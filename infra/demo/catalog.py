"""A model with its variants, deployments and prices, made of what lies in a folder."""

import re
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

    A variant that is there takes over what `config.json` says and a newer quality report. Other
    weights become a new variant, such as `bf16-2`, which takes the place of the earlier one.
    Returns the first variant's deployment.
    """
    model = selectors.model_by_public_id(public_id) or services.create_model(
        actor=actor, public_id=public_id, name=public_id.rpartition("/")[2], task=task
    )
    variants: list[Variant] = []
    replaced: list[tuple[Variant, Variant]] = []
    for each in weights:
        earlier = _of_precision(model, each.precision)
        variant = _seed_variant(actor, model, each, variants[0] if each.parent else None)
        variants.append(variant)
        if variant.id not in {one.id for one in earlier}:
            replaced += [(one, variant) for one in earlier]
    deployments = [
        _seed_deployment(actor, variant, engine, replicas_min=replicas if number == 0 else 0)
        for number, variant in enumerate(variants)
    ]
    _seed_prices(actor, variants)
    for variant in variants:
        if variant.parent_id is None or variant.latest_report is not None:
            services.publish_variant(actor=actor, variant=variant, override_reason=AHEAD)
    for earlier_variant, variant in replaced:
        _replace(actor, earlier_variant, selectors.variant(variant.id))
    return deployments[0]


def _seed_variant(actor: Actor, model: Model, weights: Weights, parent: Variant | None) -> Variant:
    facts = {
        "context_tokens": weights.context_tokens,
        "output_tokens_max": weights.output_tokens_max,
        "vocabulary_size": weights.vocabulary_size,
        "dimensions": weights.hidden_size if model.makes_embeddings else None,
        "size_bytes": weights.size_bytes,
    }
    variant = _variant_with(model, weights)
    if variant is not None:
        variant = services.update_variant(actor=actor, variant=variant, changes=facts)
    else:
        variant = services.create_variant(
            actor=actor,
            model=model,
            precision=_free_name(model, weights.precision),
            weights=weights.location,
            parent=parent,
            parameter_count=parent.parameter_count if parent else weights.parameter_count,
            **facts,
        )
    latest = variant.latest_report
    if weights.quality and (latest is None or latest.document != weights.quality):
        services.record_quality(actor=actor, variant=variant, document=weights.quality)
    return variant


def _variant_with(model: Model, weights: Weights) -> Variant | None:
    """Return the model's variant of these weights, unless other files lie in its place now."""
    live = selectors.variants(model).filter(archived_at__isnull=True)
    for variant in live.filter(weights=weights.location):
        if variant.weights_digest in ("", weights.digest):
            return variant
    return None


def _free_name(model: Model, precision: str) -> str:
    """Return the precision, with a number if the model has variants of it."""
    taken = len(_of_precision(model, precision))
    return f"{precision}-{taken + 1}" if taken else precision


def _of_precision(model: Model, precision: str) -> list[Variant]:
    """Return the model's variants of a precision, such as `bf16` and `bf16-2`."""
    named = rf"^{re.escape(precision)}(-[0-9]+)?$"
    return list(selectors.variants(model).filter(precision__regex=named))


def _replace(actor: Actor, earlier: Variant, variant: Variant) -> None:
    """Stop what runs of earlier weights, and let new ones have the model's name if those had."""
    for deployment in selectors.live_deployments(earlier):
        services.scale_deployment(
            actor=actor, deployment=deployment, replicas_min=0, replicas_max=deployment.replicas_max
        )
    if earlier.is_default and variant.published_at is not None:
        services.set_default_variant(actor=actor, model=variant.model, variant=variant)


def _seed_deployment(
    actor: Actor, variant: Variant, engine: str, *, replicas_min: int
) -> Deployment:
    known = selectors.live_deployments(variant).first()
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
