"""Train the demo model: batches, the learning rate's schedule, and the run."""

import copy
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.multiprocessing.spawn import spawn
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from infra.demo_model.batches import IGNORED, MicroBatch, learning_rate, steps
from infra.demo_model.corpus import TOOLS_SHARE, chats, mix_named
from infra.demo_model.heldout import draw_held_out
from infra.demo_model.model import logits_at, share_right_by_skill
from infra.demo_model.parallel import Team
from infra.demo_model.samples import Sample
from infra.demo_model.tokenizer import CONTEXT_TOKENS, END, PAD, save_tokenizer

Model = Any  # transformers decorates its classes beyond what a type checker follows
_POSITIONS_MULTIPLE = 128
_GENERATION = {"do_sample": True, "temperature": 0.3}


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
