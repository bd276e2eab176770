"""The fleet: starts, watches, drains and restarts replicas as deployments ask.

It is a process, `python -m serving.fleet`, and publishes the replica feed; no other package of the
data plane imports it. Start reading at `reconciler.py`.
"""
