"""The base of the operators' admin: sign-in with a second factor, and pages whose writes go through
services. Each package's pages are in its own `admin.py`."""
