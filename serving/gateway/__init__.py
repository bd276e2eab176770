"""The door of the data plane: keys, admission, relay and the one usage event per request."""
