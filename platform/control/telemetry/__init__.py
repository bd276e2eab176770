"""Logs, traces, metrics and health of the control plane. Any package above may use it; packages
with metrics of their own register them here."""
