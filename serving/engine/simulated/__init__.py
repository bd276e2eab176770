"""A simulated engine: vLLM's HTTP API and metrics, seeded text, modelled speed, scripted faults.

The fleet starts it as a process, `python -m serving.engine.simulated --help`, for load tests and
capacity planning, and imports its `adapter.py`. Start reading at `engine.py`.
"""
