"""Invoices: a closed month's usage as a final document per organization, what was paid of it, and
what corrects it. Asks following what was used, and credit and the ledger what is owed."""
