"""What may still be spent: credit grants, budgets and the leases that gateways hold on them."""
