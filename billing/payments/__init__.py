"""Money in through Stripe: who pays with what, top-ups, invoices, refunds, disputes, and the proof
that Stripe and our books say the same. Our ledger decides what is owed; Stripe only collects.

Nothing here is decided by what a webhook says: it names an object, which is fetched again, and its
state only ever moves forward. So webhooks may come late, twice and in any order."""
