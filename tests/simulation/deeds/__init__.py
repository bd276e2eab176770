"""The deeds of a plan, made into calls of the real services.

A deed first decides what to do by what its actor knows, without a database; then calls; then hears
what came of it, unless its caller died or the answer was lost.
"""
