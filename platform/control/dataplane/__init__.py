"""The internal API for gateways and the fleet only: their credentials, the records that they
exchange, and the control plane's data about gateways. Billing adds endpoints of its own."""
