"""OpenAI's Responses, without memory: lowered to chat, raised from it.

`items.py` and `request.py` are what a client may send, `lowering.py` makes a chat of it;
`answer.py` is what it gets, whole, and `stream.py` the same as it comes. `route.py` ties them.
"""
