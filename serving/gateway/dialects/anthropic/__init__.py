"""Anthropic's Messages, translated to chat and back.

`messages_request.py` is what a client may send, `messages.py` makes a chat of it, and
`messages_render.py` is what the client gets, whole or as it comes.
"""
