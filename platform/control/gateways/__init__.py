"""Which gateway is whose: the name of the credential that each gateway's id was first shown with.
The internal API asks before it listens to what is said in a gateway's name."""
