"""Rate limits, exact across gateways through Redis, and by each gateway's part without it.

The gateway calls it. Start reading at `limiter.py`; `gcra.py` is the rule, `gcra.lua` the same rule
inside Redis, and `backend.py` decides which of the two applies.
"""
