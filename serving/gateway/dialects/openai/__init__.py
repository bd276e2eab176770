"""OpenAI's routes: chat, completions, embeddings, and Responses without memory, which are
translated to chat.

`…_request.py` is what a client may send, `…_render.py` what it gets, whole or as it comes.
"""
