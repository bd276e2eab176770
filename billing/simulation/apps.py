"""The Django app of the simulator: a management command and no tables."""

from django.apps import AppConfig


class SimulationConfig(AppConfig):
    """The books under simulated load."""

    name = "billing.simulation"
    label = "simulation"
    verbose_name = "Simulation"
