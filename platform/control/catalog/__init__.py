"""Models, their variants and deployments, as operators define them; published to gateways and the
fleet through the change feed."""
