"""Embeddings of the simulated engine: seeded vectors, in the bytes that vLLM would send."""

import base64
import hashlib
import time
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
import xxhash
from msgspec import Meta

from serving.contract.codec import NOT_JSON
from serving.engine.simulated import tokens
from serving.engine.simulated.engine import AnswerPlan, GenerationRun
from serving.engine.simulated.request import SimulatedRejection, SimulatedRequest, served_model
from serving.engine.simulated.settings import SimulatorSettings

NOISE_NUMBERS = 65_536
_encode = msgspec.json.encode


class SimulatedEmbeddingBody(msgspec.Struct, frozen=True):
    """The body of `/v1/embeddings`."""

    input: str | Annotated[list[int | str | list[int]], Meta(min_length=1)]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


_decode = msgspec.json.Decoder(SimulatedEmbeddingBody).decode


@dataclass(frozen=True, slots=True)
class EmbeddingBatch:
    """Some prompts to make vectors of, each of so many `dimensions`."""

    model: str
    prompts: list[bytes]
    dimensions: int
    is_base64: bool

    @property
    def prompt_tokens(self) -> int:
        """Return the tokens of all of them."""
        return sum(map(tokens.count_of, self.prompts))

    def run(self) -> GenerationRun:
        """Return the work for an engine: all prompts are read, and nothing is said."""
        work = SimulatedRequest(
            model=self.model,
            prompt=b"",
            prompt_tokens=self.prompt_tokens,
            max_tokens=0,
            choices=1,
            stop=(),
            seed=0,
            ignore_eos=False,
            cache_salt=None,
            is_chat=False,
            is_stream=False,
            include_usage=False,
            continuous_usage=False,
        )
        plans = [AnswerPlan([], "stop") for _ in self.prompts]
        return GenerationRun(work, plans, cached_tokens=0, hit_tokens=0, block_size=1)


def read_batch(data: bytes, settings: SimulatorSettings) -> EmbeddingBatch:
    """Parse a body. Raises Refusal."""
    try:
        body = _decode(data)
    except NOT_JSON as error:
        raise SimulatedRejection(str(error), param=None) from error
    prompts = _prompts(body.input)
    for prompt in prompts:
        _check_length(tokens.count_of(prompt), settings.context_tokens)
    return EmbeddingBatch(
        model=served_model(body.model, settings.models),
        prompts=prompts,
        dimensions=_dimensions(body.dimensions, settings.dimensions),
        is_base64=body.encoding_format == "base64",
    )


def _prompts(given: str | list[int | str | list[int]]) -> list[bytes]:
    if isinstance(given, str):
        return [tokens.prompt_of_text(given)]
    ids = [each for each in given if isinstance(each, int)]
    if ids:
        return [tokens.prompt_of_ids(ids)]
    return [
        tokens.prompt_of_text(each) if isinstance(each, str) else tokens.prompt_of_ids(each)
        for each in given
        if not isinstance(each, int)
    ]


def _check_length(prompt_tokens: int, context_tokens: int) -> None:
    if prompt_tokens > context_tokens:
        message = (
            f"This model's maximum context length is {context_tokens} tokens. However, your prompt"
            f" contains at least {context_tokens + 1} input tokens, which exceeds this limit even"
            " without any output tokens. Please reduce the length of the input prompt."
        )
        raise SimulatedRejection(message, param="input_tokens")


def _dimensions(asked: int | None, most: int) -> int:
    if asked is not None and not 1 <= asked <= most:
        message = f"Model only supports dimensions in range [1, {most}], got {asked}."
        raise SimulatedRejection(message, param=None)
    return asked or most


class EmbeddingWireFormat:
    """Words one batch's answer."""

    def __init__(self, batch: EmbeddingBatch, request_id: str, *, seed: int) -> None:
        self._batch = batch
        self._id = f"embd-{request_id}"
        self._seed = seed

    def whole(self) -> bytes:
        """Return the body."""
        data = [
            {"index": index, "object": "embedding", "embedding": self._vector(prompt)}
            for index, prompt in enumerate(self._batch.prompts)
        ]
        count = self._batch.prompt_tokens
        usage = {
            "prompt_tokens": count,
            "total_tokens": count,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        }
        head = {"id": self._id, "object": "list", "created": int(time.time())}
        return _encode(head | {"model": self._batch.model, "data": data, "usage": usage})

    def _vector(self, prompt: bytes) -> str | list[float]:
        numbers = vector_of(prompt, self._batch.dimensions, seed=self._seed)
        if self._batch.is_base64:
            return base64.b64encode(numbers.tobytes()).decode()
        return numbers.tolist()


def vector_of(prompt: bytes, dimensions: int, *, seed: int) -> "array[float]":
    """Return a vector of length 1: the same for the same prompt and seed, always. Its numbers all
    have one size, and signs from a place in the seed's noise that the prompt decides."""
    signs = _noise(seed, dimensions)
    start = xxhash.xxh3_64_intdigest(prompt, seed=seed) % (len(signs) - dimensions)
    return signs[start : start + dimensions]


@lru_cache(maxsize=8)
def _noise(seed: int, dimensions: int) -> "array[float]":
    bits = hashlib.shake_128(seed.to_bytes(8, "little")).digest(NOISE_NUMBERS + dimensions)
    size = dimensions**-0.5
    return array("f", [size if byte & 1 else -size for byte in bits])
