"""Trains the embedder from the first layers of the demo model, in a Hugging Face folder that
sentence-transformers and vLLM's pooling read alike."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from transformers import LlamaModel

from infra.demo_embedder.pairs import batches, facts
from infra.demo_model.batches import learning_rate
from infra.demo_model.report import load_tokenizer
from infra.demo_model.tokenizer import PAD, save_tokenizer

LAYERS = 3
DIMENSIONS = (32, 64, 128, 256)
"""Each beginning of a vector, of such a length, is a vector of its own."""
PAIRS = 48
TEMPERATURE = 0.05
REPORT_STEPS = 100
Model = Any  # transformers decorates its classes beyond what a type checker follows

MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
"""The modules that a text goes through, as sentence-transformers names it, and the folders of the
settings."""


@dataclass(frozen=True)
class EmbedderPlan:
    """The parameters of a run. `seed` decides every pair."""

    start_from: Path
    out: Path
    minutes: float
    seed: int = 1
    peak_rate: float = 5e-4


def train(plan: EmbedderPlan) -> None:
    """Train for so long, and write the folder."""
    torch.manual_seed(plan.seed)
    tokenizer = load_tokenizer(plan.start_from)
    model = first_layers(plan.start_from)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    began_at, share, number = time.monotonic(), 0.0, 0
    for number, (texts, others) in enumerate(batches(Random(plan.seed), facts(), PAIRS)):
        share = (time.monotonic() - began_at) / (plan.minutes * 60)
        if share >= 1.0:
            break
        for group in optimizer.param_groups:
            group["lr"] = plan.peak_rate * learning_rate(share)
        loss = pairs_loss(vectors(model, tokenizer, texts), vectors(model, tokenizer, others))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if number % REPORT_STEPS == 0:
            print(f"{share:4.0%}, step {number}, loss {loss.item():.4f}", flush=True)
    print(f"{number} steps of {PAIRS} pairs")
    save(model, tokenizer, plan.out)


def first_layers(folder: Path) -> Model:
    """Return the beginning of a model that generates, in full precision."""
    return LlamaModel.from_pretrained(folder, dtype=torch.float32, num_hidden_layers=LAYERS)


def vectors(model: Model, tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """Return the mean of each text's last states: padding follows it, and is not seen by it."""
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    lengths = torch.tensor([len(row) for row in rows])
    width, pad = int(lengths.max()), tokenizer.token_to_id(PAD)
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    states = model(input_ids=ids).last_hidden_state
    seen = torch.arange(width) < lengths[:, None]
    return (states * seen[:, :, None]).sum(dim=1) / lengths[:, None]


def pairs_loss(texts: Tensor, others: Tensor) -> Tensor:
    """Each text's nearest must be what belongs to it, and the other way round, at every length."""
    wanted = torch.arange(len(texts))
    losses = []
    for length in DIMENSIONS:
        nearness = normalize(texts[:, :length]) @ normalize(others[:, :length]).T / TEMPERATURE
        losses.append(cross_entropy(nearness, wanted) + cross_entropy(nearness.T, wanted))
    return torch.stack(losses).mean()


def save(model: Model, tokenizer: Tokenizer, folder: Path) -> None:
    """Write bf16 weights, the tokenizer, and how the states become a vector."""
    rounded = model.to(torch.bfloat16)
    rounded.config.use_cache = False
    rounded.config.is_matryoshka = True
    rounded.config.matryoshka_dimensions = list(DIMENSIONS)
    rounded.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    modules = [
        {
            "idx": place,
            "name": str(place),
            "path": path,
            "type": f"sentence_transformers.models.{name}",
        }
        for place, (name, path) in enumerate(MODULES.items())
    ]
    _write(folder / "modules.json", modules)
    pooling = {"word_embedding_dimension": DIMENSIONS[-1], "pooling_mode_mean_tokens": True}
    _write(folder / MODULES["Pooling"] / "config.json", pooling)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
