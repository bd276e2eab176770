"""Rate limits, exact across gateways through Redis, and by each gateway's part of them without it.

`limiter.py` is what the gateway asks; `gcra.py` is the rule, `gcra.lua` the same rule where Redis
runs it, `counts.py` where a gateway goes by what it knows. `line.py` says which of both holds.
"""
