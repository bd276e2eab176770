"""The demo model in PyTorch: its forward pass, and greedy answers."""

from collections import Counter
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from infra.demo_model.evaluate import is_right
from infra.demo_model.samples import Sample
from infra.demo_model.tokenizer import END, PAD, render


class RootMeanSquare(torch.autograd.Function):
    """RMS norm with a hand-written backward: the composite one costs a dozen passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        inverse = torch.rsqrt(torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(epsilon))
        unit = x * inverse.unsqueeze(-1)
        ctx.save_for_backward(unit, inverse, weight)
        return (unit * weight).to(torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        unit, inverse, weight = ctx.saved_tensors
        grad = grad.float()
        grad_weight = torch.linalg.vecdot(grad, unit, dim=0)
        grad_unit = grad * weight
        along = torch.linalg.vecdot(grad_unit, unit).div_(unit.shape[-1]).unsqueeze(-1)
        return (grad_unit - unit * along).mul_(inverse.unsqueeze(-1)), grad_weight, None


def logits_at(model: Any, inputs: Tensor, positions: Tensor) -> Tensor:
    """Next-token scores at flat `positions` of the padded rows `inputs`."""
    config = model.config
    rows, width = inputs.shape
    table = model.model.embed_tokens.weight
    x = functional.embedding(inputs.flatten(), table)
    angles = rotations(width, config.head_dim, 10_000.0)
    for layer in model.model.layers:
        norm = normalized(x, layer.input_layernorm.weight, config.rms_norm_eps)
        x = x + attention(layer.self_attn, norm, rows, width, angles)
        norm = normalized(x, layer.post_attention_layernorm.weight, config.rms_norm_eps)
        x = x + feed_forward(layer.mlp, norm)
    last = normalized(x[positions], model.model.norm.weight, config.rms_norm_eps)
    return (last @ half(table).T).float()


def normalized(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return RootMeanSquare.apply(x, weight, epsilon)  # type: ignore[no-untyped-call]


def half(weight: Tensor) -> Tensor:
    return weight.to(torch.bfloat16)


def rotations(width: int, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    angles = torch.outer(torch.arange(width, dtype=torch.float32), base**-steps)
    return half(angles.cos())[:, None, :], half(angles.sin())[:, None, :]


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = angles
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attention(
    block: Any, x: Tensor, rows: int, width: int, angles: tuple[Tensor, Tensor]
) -> Tensor:
    """Grouped queries: two query heads share each key and value head."""
    parts = [half(p.weight) for p in (block.q_proj, block.k_proj, block.v_proj)]
    mixed = (x @ torch.cat(parts).T).view(rows, width, 8, 64)
    turned = rotate(mixed[:, :, :6], angles)
    q = turned[:, :, :4].reshape(rows, width, 2, 2, 64).permute(0, 2, 3, 1, 4)
    k = turned[:, :, 4:].permute(0, 2, 1, 3).unsqueeze(2)
    v = mixed[:, :, 6:].permute(0, 2, 1, 3).unsqueeze(2)
    later = torch.ones(width, width, dtype=torch.bool).triu(1)
    scores = (q.reshape(rows, 2, 2 * width, 64) * 0.125) @ k.squeeze(2).transpose(-1, -2)
    scores = scores.view(rows, 2, 2, width, width).masked_fill(later, -1e9)
    shares = scores.softmax(-1).view(rows, 2, 2 * width, width)
    mean = (shares @ v.squeeze(2)).view(rows, 2, 2, width, 64)
    joined = mean.permute(0, 3, 1, 2, 4).reshape(rows * width, 256)
    return joined @ half(block.o_proj.weight).T


def feed_forward(block: Any, x: Tensor) -> Tensor:
    gate = x @ half(block.gate_proj.weight).T
    up = x @ half(block.up_proj.weight).T
    return (functional.silu(gate) * up) @ half(block.down_proj.weight).T


@torch.no_grad()
def greedy_answer(
    model: Any, tokenizer: Tokenizer, questions: list[str], new_tokens: int = 64
) -> list[str]:
    prompts = [
        tokenizer.encode(render([{"role": "user", "content": q}]) + "<|assistant|>").ids
        for q in questions
    ]
    width, pad = max(map(len, prompts)), tokenizer.token_to_id(PAD)
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    end = tokenizer.token_to_id(END)
    made = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens,
        eos_token_id=end, pad_token_id=pad,
    )  # fmt: skip
    return [tokenizer.decode(row) for row in made[:, width:].tolist()]


def share_right_by_skill(model: Any, tokenizer: Tokenizer, some: list[Sample]) -> dict[str, float]:
    answers = greedy_answer(model, tokenizer, [sample.question for sample in some])
    asked = Counter(sample.skill for sample in some)
    right = Counter(s.skill for s, a in zip(some, answers, strict=True) if is_right(s.checker, a))
    return {skill: round(right[skill] / count, 2) for skill, count in asked.items()}
