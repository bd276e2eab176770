"""Logs, traces, metrics and health checks of the control plane. Any package above may use it;
packages register their own metrics here."""
