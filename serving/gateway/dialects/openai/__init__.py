"""OpenAI's routes: chat, completions, embeddings, and Responses without stored state.

Files that end in `_request` hold what a client may send, `render.py` and `responses_render.py` what
it gets. `dialects/routes.py` names its dialects, and Anthropic's Messages are translated to its
chat. Start reading at `chat.py`.
"""
