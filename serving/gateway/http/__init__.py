"""The gateway's HTTP/1.1 server: bounded connections, requests and responses.

Only the rest of the gateway calls it. Start reading at `connection.py`.
"""
