"""The node: one process beside each engine that starts it, guards its routes and ends with it.

It is a process, `python -m serving.node`, started by a launcher of the fleet or by an agent on
another host; nothing imports it. Start reading at `supervisor.py`, then `proxy.py`.
"""
