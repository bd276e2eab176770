"""Engines: vLLM, the simulated engine, and servers that somebody else runs.

The gateway sends requests to them, the fleet starts them, and pool and usage count their tokens.
Start reading at `request.py` for a request, at `adapter.py` for a replica.
"""
