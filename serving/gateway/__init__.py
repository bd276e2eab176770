"""One request of a client, from its bytes to its usage event.

It is a process, `python -m serving.gateway`; no other package imports it. Start reading at
`inference.py`.
"""
