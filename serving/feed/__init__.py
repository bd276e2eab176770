"""Following a feed of the contract: control's changes, or the fleet's replicas.

`FeedSource` asks, `FeedFollower` asks again and again, `FeedMirror` holds what is known.
"""
