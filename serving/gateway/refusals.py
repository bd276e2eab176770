"""What an engine's refusal means to a client, without the engine's own words."""

import re

from serving.engine.client import EngineRefusal
from serving.gateway.errors import BadRequest
from serving.gateway.job import Job, context_exceeded

_CONTEXT = re.compile(r"context length|max_model_len|maximum model length|is longer than", re.I)
_TOOLS = re.compile(r"tool[ _-]?(choice|call|parser|use)", re.I)
_FORMAT = re.compile(r"schema|grammar|json|regex|structured", re.I)
_TEMPLATE = re.compile(r"template|role|alternat", re.I)


def translate(refusal: EngineRefusal, job: Job) -> BadRequest:
    """Return the client's error for a refusal."""
    text = refusal.text
    if _CONTEXT.search(text):
        return context_exceeded(job.model.context_tokens)
    if _TOOLS.search(text):
        message = "This model cannot use tools in this way; name one function in 'tool_choice'."
        return BadRequest(message, code="unsupported_value", param="tool_choice")
    if _FORMAT.search(text):
        message = "This model cannot answer in this format."
        return BadRequest(message, code="unsupported_value", param="response_format")
    if _TEMPLATE.search(text):
        message = "This model cannot take these messages in this order."
        return BadRequest(message, code="unsupported_value", param="messages")
    return BadRequest("The model cannot serve this request.", code="invalid_value")
