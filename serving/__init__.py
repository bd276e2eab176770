"""The data plane: answers requests of `/v1`, runs engines, and reports usage to billing.

Control, billing and the console import `serving.contract` alone. Start reading at
`gateway/inference.py`.
"""
