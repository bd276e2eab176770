"""What moves an organization through collection: its looks, the operator's decisions, the measures
that both take, and what is told of them."""
