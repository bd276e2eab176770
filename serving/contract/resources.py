"""What one replica of a deployment needs of a host, declared instead of in engine arguments."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from serving.contract.codec import require
from serving.contract.units import Tokens

ACCELERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
MIG_SLICE = re.compile(r"(?i)\bmig\b|\b\d+g\.\d+gb\b")
PARALLEL_MAX = 1_024
AcceleratorKind = Annotated[str, Meta(max_length=64, pattern=r"^([A-Za-z0-9][A-Za-z0-9 ._-]*)?\Z")]
ParallelSize = Annotated[int, Meta(ge=1, le=PARALLEL_MAX)]
DECLARED_FLAGS = {
    "--tensor-parallel-size": "tensor_parallel_size of the variant",
    "-tp": "tensor_parallel_size of the variant",
    "--pipeline-parallel-size": "pipeline_parallel_size of the variant",
    "-pp": "pipeline_parallel_size of the variant",
    "--max-model-len": "context_tokens of the variant",
    "--max-num-seqs": "slots of the deployment",
}
"""Flags of vLLM that would contradict what is declared, and the field to set instead."""


class ReplicaResources(msgspec.Struct, frozen=True, gc=False):
    """What one replica takes. `accelerator` is a kind of GPU by words of its name, such as "H100"
    or "A100 80GB", "GPU" for any, empty for a CPU; the replica has `accelerator_count` whole ones.
    `context_tokens` is the longest sequence, None for that of the weights.
    """

    accelerator: AcceleratorKind = ""
    tensor_parallel_size: ParallelSize = 1
    pipeline_parallel_size: ParallelSize = 1
    context_tokens: Tokens | None = None

    def __post_init__(self) -> None:
        wanted = "a kind of whole GPUs, since slices of one (MIG) are not given"
        is_whole = not MIG_SLICE.search(self.accelerator)
        require(is_whole, "accelerator", self.accelerator, wanted)

    @property
    def rank_count(self) -> int:
        """Over how many workers the weights are divided."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def accelerator_count(self) -> int:
        """How many GPUs a replica has: one a worker."""
        return self.rank_count if self.accelerator else 0

    @property
    def accelerators(self) -> str:
        """The GPUs of a replica in words, such as "2 × H100"; empty for a CPU."""
        return f"{self.accelerator_count} × {self.accelerator}" if self.accelerator else ""


def declared_field(argument: str) -> str | None:
    """Return the field that is set instead of an engine argument, None if there is none."""
    return DECLARED_FLAGS.get(_flag(argument))


def _flag(argument: str) -> str:
    flag = argument.partition("=")[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag
