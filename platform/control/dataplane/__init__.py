"""The internal API, which only gateways and the fleet call: their credentials, the records they
send and get, and what the control plane keeps about gateways. Billing adds calls of its own."""
