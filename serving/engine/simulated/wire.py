"""The bytes that vLLM 0.32 would send, recorded from it; fields that are always null included."""

import time
from collections.abc import Sequence

import msgspec

from serving.engine.simulated.engine import AnswerPlan, GenerationRun

FINGERPRINT = "simulated-0.32.0"
ENGINE_DIED = "EngineCore encountered an issue. See stack trace (above) for the root cause."
DONE = b"data: [DONE]\n\n"
NOTHING_SAID: dict[str, object] = {
    "refusal": None,
    "annotations": None,
    "audio": None,
    "function_call": None,
    "reasoning": None,
}
_encode = msgspec.json.encode


def error_body(message: str, *, kind: str, param: str | None, status: int) -> bytes:
    """Return an error as vLLM words it: code is the HTTP status as a number."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


def models_body(models: Sequence[str], *, context_tokens: int, created: int) -> bytes:
    """Return the answer of `/v1/models`."""
    cards: list[dict[str, object]] = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": name,
            "parent": None,
            "max_model_len": context_tokens,
            "permission": [],
        }
        for name in models
    ]
    return _encode({"object": "list", "data": cards})


def count_body(count: int, *, context_tokens: int) -> bytes:
    """Return the answer of `/tokenize`."""
    tokens = list(range(count))
    return _encode(
        {"count": count, "max_model_len": context_tokens, "tokens": tokens, "token_strs": None}
    )


class VllmWireFormat:
    """Words one run's answer. The parts of a chunk that never change are encoded once."""

    def __init__(self, run: GenerationRun, request_id: str) -> None:
        work = run.request
        self.run = run
        self.created = int(time.time())
        self.id = f"{'chatcmpl' if work.is_chat else 'cmpl'}-{request_id}"
        kind = "chat.completion.chunk" if work.is_chat else "text_completion"
        head = {"id": self.id, "object": kind, "created": self.created, "model": work.model}
        self._head = b"data: " + _encode(head)[:-1] + b',"choices":['
        self._sent = [0] * work.choices
        self._usage_head = b'],"usage":{"prompt_tokens":%d' % work.prompt_tokens

    def opening(self) -> bytes:
        """Return the chunks that come before the first token: the role, for chats."""
        if not self.run.request.is_chat:
            return b""
        tail = b',"prompt_token_ids":null,"prompt_text":null}\n\n'
        delta = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return b"".join(
            self._head + b'{"index":%d,' % choice + delta + self._usage(0) + tail
            for choice in range(self.run.request.choices)
        )

    def token(self, choice: int, index: int) -> bytes:
        """Return the chunk that a choice's token number `index` completes, or nothing yet."""
        plan, told = self.run.plans[choice], self._sent[choice]
        is_last = index + 1 == len(plan.pieces)
        if told and not is_last and index + 1 - told < self.run.request.stream_interval:
            return b""
        self._sent[choice] = index + 1
        said = "".join(plan.pieces[told : index + 1])
        piece = _encode(said)
        if plan.called is not None:
            delta = _encode(self._call_delta(choice, said, is_first=not told))
            text = b'"delta":' + delta + b',"logprobs":null,'
        elif self.run.request.is_chat:
            text = b'"delta":{"content":' + piece + b'},"logprobs":null,'
        else:
            text = b'"text":' + piece + b',"logprobs":null,'
        end = self._finish(plan) if is_last else self._unfinished()
        fingerprint = b""
        if is_last and not self.run.request.include_usage:
            fingerprint = b',"system_fingerprint":"' + FINGERPRINT.encode() + b'"'
        return b"".join(
            (
                self._head,
                b'{"index":%d,' % choice,
                text,
                end,
                self._usage(index + 1),
                fingerprint,
                b"}\n\n",
            )
        )

    def closing(self) -> bytes:
        """Return what follows the last token: the usage, if asked for, and the end."""
        if not self.run.request.include_usage:
            return DONE
        usage = usage_of(self.run, self.run.generated_tokens)
        fingerprint = b',"system_fingerprint":"' + FINGERPRINT.encode() + b'"}\n\n'
        return self._head + b'],"usage":' + _encode(usage) + fingerprint + DONE

    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed."""
        work = self.run.request
        choice_of = self._chat_choice if work.is_chat else _text_choice
        body = {
            "id": self.id,
            "object": "chat.completion" if work.is_chat else "text_completion",
            "created": self.created,
            "model": work.model,
            "choices": [choice_of(i, plan) for i, plan in enumerate(self.run.plans)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": usage_of(self.run, self.run.generated_tokens),
        }
        return _encode(body)

    def _usage(self, completion_tokens: int) -> bytes:
        work = self.run.request
        if not work.continuous_usage:
            return b"]"
        counts = (work.prompt_tokens + completion_tokens, completion_tokens)
        details = b',"completion_tokens_details":null}' if work.is_chat else b"}"
        head = self._usage_head + b',"total_tokens":%d,"completion_tokens":%d' % counts
        return head + details

    def _finish(self, plan: AnswerPlan) -> bytes:
        reasons = (plan.finish_reason.encode(), _encode(plan.stop_reason))
        return b'"finish_reason":"%b","stop_reason":%b%b}' % (*reasons, self._token_ids)

    def _unfinished(self) -> bytes:
        stop_reason = b"" if self.run.request.is_chat else b',"stop_reason":null'
        return b'"finish_reason":null' + stop_reason + self._token_ids + b"}"

    def _call_delta(self, choice: int, arguments: str, *, is_first: bool) -> dict[str, object]:
        called = self.run.plans[choice].called
        function = (
            {"name": called, "arguments": arguments} if is_first else {"arguments": arguments}
        )
        opening = {"id": self._call_id(choice), "type": "function"} if is_first else {}
        return {"tool_calls": [opening | {"index": 0, "function": function}]}

    def _call_id(self, choice: int) -> str:
        return f"chatcmpl-tool-{self.id[-16:]}{choice}"

    def _chat_choice(self, index: int, plan: AnswerPlan) -> dict[str, object]:
        text = "".join(plan.pieces)
        message: dict[str, object] = {"role": "assistant", "content": text} | NOTHING_SAID
        if plan.called is not None:
            function = {"name": plan.called, "arguments": text}
            call = {"id": self._call_id(index), "type": "function", "function": function}
            message |= {"content": None, "tool_calls": [call]}
        return {
            "index": index,
            "message": message,
            "logprobs": None,
            "finish_reason": plan.finish_reason,
            "stop_reason": plan.stop_reason,
            "token_ids": None,
            "routed_experts": None,
        }

    @property
    def _token_ids(self) -> bytes:
        if self.run.request.is_chat:
            return b',"token_ids":null'
        return b',"prompt_token_ids":null,"token_ids":null'


def usage_of(run: GenerationRun, completion_tokens: int) -> dict[str, object]:
    """Return the final usage; cached tokens are named here and nowhere else."""
    prompt_tokens = run.request.prompt_tokens
    details = {"cached_tokens": run.cached_tokens}
    if run.new_cached_tokens:
        details["created_cache_tokens"] = run.new_cached_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": details,
    }


def _text_choice(index: int, plan: AnswerPlan) -> dict[str, object]:
    return {
        "index": index,
        "text": "".join(plan.pieces),
        "logprobs": None,
        "finish_reason": plan.finish_reason,
        "stop_reason": plan.stop_reason,
    }


def error_of(status: int) -> bytes:
    """Return vLLM's error for work that is under way: its core died, or it refuses late."""
    if status < 500:
        message = "Grammar error: the simulated engine was told to refuse."
        return error_body(message, kind="BadRequestError", param=None, status=status)
    return error_body(ENGINE_DIED, kind="InternalServerError", param=None, status=status)


def stream_error(status: int) -> bytes:
    """Return how vLLM ends such a stream: an error chunk, and `[DONE]` after it."""
    return b"data: " + error_of(status) + b"\n\n" + DONE
