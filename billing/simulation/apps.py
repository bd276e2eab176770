"""The Django app of the simulator: a management command and no tables."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SimulationConfig(AppConfig):
    """The books under simulated load."""

    name = "billing.simulation"
    label = "simulation"
    verbose_name = _("Simulation")
