"""Clients of others, each in an environment of its own from the package index, tried against a
running stack with real vLLM: `make clients` prints who can do what. It is not part of the suite,
since what it installs is whatever is newest today."""
