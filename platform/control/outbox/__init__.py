"""Calls to the outside that must happen: a row in the transaction that decides on it, delivered
until done. Every package above may `enqueue`; an app's config names the module that delivers."""
