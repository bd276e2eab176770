"""Following a feed of the contract: control's changes, or the fleet's replicas.

`HttpSource` asks, `Follower` asks again and again, `Mirror` holds what is known.
"""
