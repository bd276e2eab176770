"""The fleet: starts, watches, drains and restarts engine replicas as deployments ask.

`python -m serving.fleet`. It follows control's change feed and publishes the replica feed.
"""
