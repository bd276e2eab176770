"""Anthropic's Messages: lowered to chat, raised from it.

`blocks.py` and `request.py` are what a client may send, `lowering.py` makes a chat of it;
`answer.py` is what it gets, whole, and `stream.py` the same as it comes; `errors.py` is how it is
told of errors. `route.py` ties them to two routes: one answers, one only counts.
"""
