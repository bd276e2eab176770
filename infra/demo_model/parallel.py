"""Data-parallel training over processes of one thread each.

Threads that share one small matrix product wait for each other at every step of it, and a busy
machine makes that wait long: two processes that meet once an update lose far less.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Team:
    rank: int
    size: int

    def join(self, meeting_file: str) -> None:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting_file}", rank=self.rank, world_size=self.size
        )

    def leave(self) -> None:
        distributed.destroy_process_group()

    def average(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its mean over the team, in one exchange."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        _unflatten(flat / self.size, tensors)

    def share(self, tensors: list[Tensor], owner: int) -> None:
        """Give every member the owner's values."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.broadcast(flat, src=owner)
        _unflatten(flat, tensors)


def _unflatten(flat: Tensor, tensors: list[Tensor]) -> None:
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
