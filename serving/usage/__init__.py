"""Money and facts: credit leases, the meter, the durable journal, and its way to billing.

The gateway calls it, and `penstock gateways ship-usage` does. Start reading at `leases.py`, then
`journal.py`.
"""
