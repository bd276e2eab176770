"""Anthropic's Messages, translated to chat and back.

`dialects/routes.py` names its dialects. Start reading at `messages.py`; `messages_request.py` is
what a client may send, and `messages_render.py` what it gets, whole or as events.
"""
