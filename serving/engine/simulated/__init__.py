"""A simulated engine: vLLM's HTTP and metrics, seeded tokens, modelled speed, scripted faults.

For tests, benchmarks and capacity planning; `python -m serving.engine.simulated --help`.
"""
