"""Engines: what runs a model. vLLM, the simulated engine, and servers that somebody else runs."""
