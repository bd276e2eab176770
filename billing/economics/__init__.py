"""What it earns, and what it would: engines' own counters, their reconciliation with the books, the
margin, replays of draft prices, and the export of usage and cost in the FOCUS format.

Operators alone may call it: it speaks of replicas and costs, which no customer sees.
"""
