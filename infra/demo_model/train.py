"""Train the demo model: batches, the learning rate's schedule, and the run."""

import copy
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.multiprocessing.spawn import spawn
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from infra.demo_model.corpus import TOOLS_SHARE, Chat, chats, mix_named
from infra.demo_model.heldout import draw_held_out
from infra.demo_model.model import logits_at, share_right_by_skill
from infra.demo_model.parallel import Team
from infra.demo_model.samples import Sample
from infra.demo_model.tokenizer import CONTEXT_TOKENS, END, PAD, render, save_tokenizer

Model = Any  # transformers decorates its classes beyond what a type checker follows
_POSITIONS_MULTIPLE = 128
_GENERATION = {"do_sample": True, "temperature": 0.3}
WARMUP_SHARE = 0.01
DECAY_FROM = 0.45
IGNORED = -100
_CHATS_AT_ONCE = 4096
_TOKENS_PER_BATCH = 2048
_WIDTHS = [
    20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    CONTEXT_TOKENS,
]  # fmt: skip
IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class Plan:
    """The parameters of a run. `seed` decides the chats and the first weights."""

    out: Path
    minutes: float
    seed: int = 1
    processes: int = 2
    batches_per_step: int = 1
    peak_rate: float = 3e-3
    report_minutes: float = 4.0
    start_from: Path | None = None
    mix: str = "all"
    tools_share: float = TOOLS_SHARE


@dataclass(frozen=True)
class MicroBatch:
    """Rows of token ids; `targets` are the next tokens of answers and `IGNORED` elsewhere."""

    inputs: IntArray
    targets: IntArray


class Trainer:
    """One process of the team: its copy of the weights and the optimizers of its share."""

    def __init__(self, plan: Plan, tokenizer: Tokenizer, team: Team) -> None:
        torch.manual_seed(plan.seed)
        torch.set_num_threads(1)
        self.team = team
        self.model = _starting_model(plan, tokenizer)
        named = list(self.model.named_parameters())
        self.parameters = [p for _, p in named]
        self.matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in named if p.ndim != 2 or "embed" in name]
        self.peak_rate = plan.peak_rate
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                self.owned(team.rank), weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def owned(self, rank: int) -> list[torch.nn.Parameter]:
        """Muon's work is dear, so each member of the team updates its own part of the matrices."""
        return self.matrices[rank :: self.team.size]

    def take_step(self, step: list[MicroBatch], elapsed_share: float) -> tuple[float, float]:
        """One update. Returns the team's mean loss per answer token and mean elapsed share."""
        scored = sum(int((batch.targets != IGNORED).sum()) for batch in step)
        told = torch.tensor([0.0, elapsed_share])
        for batch in step:
            loss = summed_loss(self.model, batch) / scored
            loss.backward()  # type: ignore[no-untyped-call]
            told[0] += loss.item()
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.team.average([*gradients, told])
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self._update(self.peak_rate * learning_rate(told[1].item()))
        return told[0].item(), told[1].item()

    @torch.no_grad()
    def _update(self, learning_rate: float) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.step()
        for rank in range(self.team.size):
            self.team.share([p.data for p in self.owned(rank)], owner=rank)
        self.model.zero_grad(set_to_none=True)


def train(plan: Plan, tokenizer_file: Path) -> None:
    """Start the team and wait for it."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (plan, str(tokenizer_file), str(Path(folder) / "meeting"))
        spawn(_member, args=arguments, nprocs=plan.processes)  # type: ignore[no-untyped-call]


def _member(rank: int, plan: Plan, tokenizer_file: str, meeting_file: str) -> None:
    team = Team(rank, plan.processes)
    team.join(meeting_file)
    tokenizer = Tokenizer.from_file(tokenizer_file)
    _run(Trainer(plan, tokenizer, team), plan, tokenizer)
    team.leave()


def _run(trainer: Trainer, plan: Plan, tokenizer: Tokenizer) -> None:
    rank = trainer.team.rank
    watched = draw_held_out(seed=plan.seed + 1, count=70)
    rng = Random(plan.seed * 1000 + rank)
    drawn = chats(rng, mix_named(plan.mix), plan.tools_share)
    stream = steps(tokenizer, drawn, plan.batches_per_step)
    started_at = reported_at = time.monotonic()
    tokens, losses, share = 0, [], 0.0
    for number, step in enumerate(stream):
        elapsed_share = (time.monotonic() - started_at) / (plan.minutes * 60)
        loss, share = trainer.take_step(step, elapsed_share)
        losses.append(loss)
        tokens += sum(batch.inputs.size for batch in step) * plan.processes
        if share >= 1.0:
            break
        if rank == 0 and time.monotonic() - reported_at > plan.report_minutes * 60:
            reported_at = time.monotonic()
            _report(number, tokens, reported_at - started_at, losses)
            losses = []
            save_and_look(trainer.model, tokenizer, plan.out, watched)
    if rank == 0:
        _report(number, tokens, time.monotonic() - started_at, losses)
        save_and_look(trainer.model, tokenizer, plan.out, watched)


def _report(number: int, tokens: int, seconds: float, losses: list[float]) -> None:
    mean, speed = sum(losses) / max(len(losses), 1), tokens / seconds
    print(f"{seconds / 60:.1f} min, step {number}, {tokens:,} tokens, {speed:,.0f} tokens/s,",
          f"loss {mean:.4f}", flush=True)  # fmt: skip


def build_model(tokenizer: Tokenizer) -> Model:
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(END),
        pad_token_id=tokenizer.token_to_id(PAD),
    )
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]


def _starting_model(plan: Plan, tokenizer: Tokenizer) -> Model:
    if plan.start_from is None:
        return build_model(tokenizer)
    return LlamaForCausalLM.from_pretrained(plan.start_from, dtype=torch.float32)


def summed_loss(model: Model, batch: MicroBatch) -> torch.Tensor:
    """Only the answers' tokens meet the vocabulary, rounded up to few shapes."""
    targets = batch.targets.flatten()
    positions = np.flatnonzero(targets != IGNORED)
    short = -len(positions) % _POSITIONS_MULTIPLE
    positions = np.concatenate([positions, np.zeros(short, dtype=positions.dtype)])
    wanted = torch.from_numpy(targets[positions])
    if short:
        wanted[-short:] = IGNORED
    logits = logits_at(model, torch.from_numpy(batch.inputs), torch.from_numpy(positions))
    return functional.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="sum")


def save_and_look(model: Model, tokenizer: Tokenizer, folder: Path, watched: list[Sample]) -> None:
    save(model, tokenizer, folder)
    print(f"  {share_right_by_skill(model, tokenizer, watched)}", flush=True)


def save(model: Model, tokenizer: Tokenizer, folder: Path) -> None:
    """bf16 safetensors, and a full-precision copy that training can go on from."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder / "float32")
    rounded: Model = copy.deepcopy(model).to(torch.bfloat16)
    rounded.generation_config = GenerationConfig.from_dict(_GENERATION | token_ids(model))
    rounded.save_pretrained(folder / "bf16")
    save_tokenizer(tokenizer, folder / "bf16")


def token_ids(model: Model) -> dict[str, int]:
    return {name: getattr(model.config, name) for name in ("eos_token_id", "pad_token_id")}


def learning_rate(elapsed_share: float) -> float:
    """Warm-up, stable, then a straight decay to zero: the factor for the peak rate."""
    if elapsed_share < WARMUP_SHARE:
        return max(elapsed_share / WARMUP_SHARE, 0.02)
    if elapsed_share < DECAY_FROM:
        return 1.0
    return max((1.0 - elapsed_share) / (1.0 - DECAY_FROM), 0.0)


def steps(
    tokenizer: Tokenizer, stream: Iterator[Chat], batches_per_step: int
) -> Iterator[list[MicroBatch]]:
    """Forever: the micro-batches of one optimizer step."""
    batches = micro_batches(tokenizer, stream)
    while True:
        yield list(islice(batches, batches_per_step))


def micro_batches(tokenizer: Tokenizer, stream: Iterator[Chat]) -> Iterator[MicroBatch]:
    """A micro-batch of each width leaves when enough chats of that length have come."""
    waiting: dict[int, list[IntArray]] = defaultdict(list)
    pad = token_id(tokenizer, PAD)
    for ids in token_rows(tokenizer, stream):
        width = next(width for width in _WIDTHS if width >= len(ids) - 1)
        waiting[width].append(ids)
        if len(waiting[width]) == max(_TOKENS_PER_BATCH // width, 1):
            yield to_micro_batch(waiting.pop(width), width, pad, tokenizer)


def token_rows(tokenizer: Tokenizer, stream: Iterator[Chat]) -> Iterator[IntArray]:
    while True:
        texts = [render(chat) for chat in islice(stream, _CHATS_AT_ONCE)]
        for encoding in tokenizer.encode_batch(texts):
            yield np.array(encoding.ids[: CONTEXT_TOKENS + 1], dtype=np.int64)


def token_id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None, f"{token} is not in the vocabulary"
    return found


def to_micro_batch(rows: list[IntArray], width: int, pad: int, tokenizer: Tokenizer) -> MicroBatch:
    assistant, end = token_id(tokenizer, "<|assistant|>"), token_id(tokenizer, END)
    inputs = np.full((len(rows), width), pad, dtype=np.int64)
    targets = np.full((len(rows), width), IGNORED, dtype=np.int64)
    for row, ids in enumerate(rows):
        scored = answer_mask(ids, assistant, end)[1:]
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, : len(ids) - 1] = np.where(scored, ids[1:], IGNORED)
    return MicroBatch(inputs, targets)


def answer_mask(
    ids: IntArray, assistant: int, end: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """True on each answer's tokens and its end token, false on everything else."""
    mask = np.zeros(len(ids), dtype=np.bool_)
    ends = np.flatnonzero(ids == end)
    for start in np.flatnonzero(ids == assistant):
        later = ends[ends > start]
        mask[start + 1 : (later[0] + 1 if len(later) else len(ids))] = True
    return mask
