"""Stripe, as far as we use it, made of Stripe's published sample objects (`samples.json`, its
licence beside it). It answers questions of stripe-python's API, in whatever process they are asked,
and refuses what Stripe refuses, and some things more: a POST without an idempotency key, a
parameter that stripe-python's own types do not know."""

from tests.simulation.stripe_double.double import KEYS, Question, Reply, StripeDouble
from tests.simulation.stripe_double.faults import Fault

__all__ = ["KEYS", "Fault", "Question", "Reply", "StripeDouble"]
