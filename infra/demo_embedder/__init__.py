"""The demo embedder: a small model that Penstock ships, whose vectors tell which fact about
Penstock a text is about, and the scripts that make and judge it."""
