"""Greedy answers straight from the weights, for a look at each skill during training."""

from collections import Counter
from typing import Any

import torch
from tokenizers import Tokenizer

from infra.demo_model.checkers import is_right
from infra.demo_model.sample import Sample
from infra.demo_model.tokenizer import END, PAD, render


@torch.no_grad()
def answer(
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
    answers = answer(model, tokenizer, [sample.question for sample in some])
    asked = Counter(sample.skill for sample in some)
    right = Counter(s.skill for s, a in zip(some, answers, strict=True) if is_right(s.checker, a))
    return {skill: round(right[skill] / count, 2) for skill, count in asked.items()}
