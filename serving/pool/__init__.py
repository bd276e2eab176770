"""The slots of each deployment's replicas: who waits, who is next, and which replica answers.

The gateway calls it. Start reading at `pool.py`; `queue.py` and `tier_queue.py` hold the order.
"""
