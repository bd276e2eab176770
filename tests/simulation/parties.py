"""Who bills whom in a simulated world: two sellers, rates of tax, and whom invoices are for."""

import random

from billing.invoicing.models import BillingProfile, LegalEntity, TaxRate
from tests.simulation.world import World

RATES = {"DE": 1900, "FR": 2001, "JP": 0}
"""Basis points by country; elsewhere there is no tax."""
REVERSE_CHARGE = "FR"
PLACES = (("", ""), ("US", ""), ("DE", ""), ("DE", "DE123456789"), ("FR", ""), ("FR", "FR1"),
          ("JP", ""))  # fmt: skip
RECIPIENTS = ("one@example.com", "two@example.com")


def make_parties(world: World, rng: random.Random) -> None:
    """Give each organization a profile, at times another seller, and a country with its tax."""
    other = LegalEntity.objects.create(
        id="entity_other", name="Other", address="", country="DE", number_prefix="OTHER-",
        credit_note_prefix="OTHER-CN-",
    )  # fmt: skip
    for country, rate in RATES.items():
        TaxRate.objects.create(
            country=country, name="VAT", rate_basis_points=rate,
            reverse_charge=country == REVERSE_CHARGE,
        )  # fmt: skip
    for owner in world.organization_ids:
        country, tax_id = rng.choice(PLACES)
        BillingProfile.objects.create(
            organization_id=owner, country=country, tax_id=tax_id, recipients=[*RECIPIENTS],
            legal_entity=rng.choice((None, other)),
        )  # fmt: skip
        is_free = country == REVERSE_CHARGE and tax_id
        world.tax_rates[owner] = 0 if is_free else RATES.get(country, 0)
