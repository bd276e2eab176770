"""`vllm bench serve`, a load generator, from the project's own environment."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import trying

REQUESTS = 4
VLLM = [sys.executable, "-c", "from infra.cli import main; main()", "vllm"]
ASKED = [
    *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
    *("--base-url", trying.BASE_URL.removesuffix("/v1"), "--model", trying.MODEL),
    *("--tokenizer", os.environ["TOKENIZER"], "--dataset-name", "random"),
    *("--random-input-len", "30", "--random-output-len", "10"),
    *("--num-prompts", str(REQUESTS), "--max-concurrency", "2", "--save-result"),
]


def stream() -> None:
    """Measure a few streams; each must be finished and counted."""
    with tempfile.TemporaryDirectory(prefix="vllm-bench-") as folder:
        command = [*VLLM, "bench", "serve", *ASKED, "--result-dir", folder]
        done = subprocess.run(
            command,
            env={**os.environ, "OPENAI_API_KEY": trying.API_KEY},
            capture_output=True,
            text=True,
            check=False,
        )
        found = list(Path(folder).glob("*.json"))
        assert found, (done.stdout + done.stderr)[-300:]
        result = json.loads(found[0].read_text())
    assert result["completed"] == REQUESTS, result
    assert result["mean_ttft_ms"] > 0
    assert result["total_output_tokens"] > 0


trying.try_all(stream)
