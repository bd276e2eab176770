"""Models, their variants and deployments, as operators describe them; published to gateways and the
fleet by the change feed."""
