"""Other gateways in the same run, each in an environment of its own that the bench builds once.

They do less than Penstock's gateway does, or other things: `DOES` says it beside every number.
"""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import Cores
from tests.benchmarks.mock import MODEL
from tests.benchmarks.process import free_port, running
from tests.benchmarks.target import Target

LITELLM = "litellm[proxy]==1.106.2"
ROUTER = "vllm-router==0.1.17"
START_SECONDS = 240.0
INSTALL_SECONDS = 300.0
DOES = (
    "Penstock: key, closed schema, money held, usage journalled with fsync before the end, events"
    " shipped, on every request.",
    f"LiteLLM ({LITELLM}, one worker): one master key; without its database it keeps no tenants,"
    " no balance and no durable usage.",
    f"vllm-router ({ROUTER}, Rust): routing only; no keys, no metering, no money.",
)


def cache_folder() -> Path:
    """Return where environments of peers are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "penstock-bench"


def environment(requirement: str) -> Path:
    """Return the folder of programs of an environment with `requirement`, made when missing."""
    folder = cache_folder() / "".join(c if c.isalnum() else "-" for c in requirement)
    if not (folder / "complete").exists():
        _build(folder, requirement)
    return folder / "bin"


def install() -> None:
    """Build what is missing, before anything is measured."""
    for requirement in (LITELLM, ROUTER):
        environment(requirement)


def _build(folder: Path, requirement: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", str(folder)], check=True)
    python = str(folder / "bin/python")
    command = [*uv, "pip", "install", "--quiet", "--python", python, requirement]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    if done.returncode:
        raise BenchmarkFailed(f"{requirement} could not be installed: {done.stderr[-500:]}")
    (folder / "complete").touch()


@contextmanager
def litellm(engine_url: str, *, folder: Path, cores: Cores) -> Iterator[Target]:
    """Run LiteLLM's proxy before the engine, with a master key only."""
    port, key = free_port(), f"sk-{secrets.token_hex(16)}"
    config = folder / "litellm.yaml"
    config.write_text(
        f"model_list:\n- model_name: {MODEL}\n  litellm_params:\n    model: openai/{MODEL}\n"
        f"    api_base: {engine_url}/v1\n    api_key: none\n"
        f"general_settings:\n  master_key: {key}\nlitellm_settings:\n  telemetry: false\n"
    )
    command = [str(environment(LITELLM) / "litellm"), "--config", str(config)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with running("litellm", command, folder=folder, cores=cores, env=env) as child:
        child.wait_until_answers(
            f"http://127.0.0.1:{port}/health/liveliness", seconds=START_SECONDS
        )
        yield Target("LiteLLM", f"http://127.0.0.1:{port}", key, child)


@contextmanager
def router(
    *engine_urls: str, folder: Path, cores: Cores, policy: str = "round_robin"
) -> Iterator[Target]:
    """Run vllm-router before engines."""
    port = free_port()
    command = [str(environment(ROUTER) / "vllm-router"), "--worker-urls", *engine_urls]
    command += ["--host", "127.0.0.1", "--port", str(port), "--policy", policy]
    command += ["--prometheus-port", str(free_port()), "--log-level", "error"]
    with running("vllm-router", command, folder=folder, cores=cores, env={}) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/health", seconds=START_SECONDS)
        yield Target("vllm-router", f"http://127.0.0.1:{port}", child=child)


STARTS = (router, litellm)
