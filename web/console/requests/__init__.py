"""Requests as a question in the URL, and as files that are streamed."""
