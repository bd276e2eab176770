"""Makes int8 (W8A8) and int4 (W4A16) from the bf16 weights by GPTQ, in an environment of its own.

Calibration reads the training stream, under a seed that training does not use.
"""

import shutil
import tempfile
from itertools import islice
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from infra.demo_model.corpus import chats
from infra.demo_model.tokenizer import render

SCHEMES = {"int8": "W8A8", "int4": "W4A16"}
CALIBRATION_SEED = 77
CALIBRATION_CHATS = 512
CALIBRATION_TOKENS_MAX = 256
_WEIGHT_FILES = ["config.json", "generation_config.json", "model.safetensors"]
_TOKENIZER_FILES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "serving.json",
]


def calibration_tokens(tokenizer: Tokenizer) -> list[list[int]]:
    some = islice(chats(Random(CALIBRATION_SEED)), CALIBRATION_CHATS)
    encodings = tokenizer.encode_batch([render(chat) for chat in some])
    return [encoding.ids[:CALIBRATION_TOKENS_MAX] for encoding in encodings]


def quantize(parent: Path, out: Path, variant: str) -> None:
    """Write a complete folder for `variant` at `out`; an older one is replaced."""
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # small products: more threads spend their time waiting for each other
    model = AutoModelForCausalLM.from_pretrained(parent, dtype="auto")
    rows = calibration_tokens(Tokenizer.from_file(str(parent / "tokenizer.json")))
    data = Dataset.from_list([{"input_ids": r, "attention_mask": [1] * len(r)} for r in rows])
    recipe = GPTQModifier(targets="Linear", scheme=SCHEMES[variant], ignore=["lm_head"])
    with tempfile.TemporaryDirectory() as scratch:
        oneshot(
            model=model,
            dataset=data,
            recipe=recipe,
            max_seq_length=CALIBRATION_TOKENS_MAX,
            num_calibration_samples=len(rows),
            output_dir=scratch,
        )
        replace_folder(Path(scratch), out, parent)


def replace_folder(made: Path, out: Path, parent: Path) -> None:
    """Keep the weights and their configuration; the tokenizer is the parent's, byte for byte."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sources = [(made, name) for name in _WEIGHT_FILES] + [(parent, n) for n in _TOKENIZER_FILES]
    for folder, name in sources:
        shutil.copyfile(folder / name, out / name)
