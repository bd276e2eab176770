"""`python -m infra.demo_model`: make and judge the demo model. Imports are late, torch is slow."""

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

HERE = Path(__file__).parent
WEIGHTS = HERE / "weights"
Seed = Annotated[int, typer.Option(help="Decides every random choice.")]

app = typer.Typer(
    help="Make and judge Penstock's demo model.", no_args_is_help=True, add_completion=False
)


@app.command()
def corpus(
    out: Annotated[Path, typer.Option(help="File of JSON lines to write.")] = Path("corpus.jsonl"),
    count: Annotated[int, typer.Option(min=1, help="Number of chats.")] = 10_000,
    seed: Seed = 1,
) -> None:
    """Write a piece of the training corpus, to look at."""
    from infra.demo_model.corpus import write_corpus

    write_corpus(out, seed, count)
    typer.echo(f"{count} chats in {out}")


@app.command()
def heldout() -> None:
    """Write the 300 held-out questions again; the file stays the same unless the skills changed."""
    from infra.demo_model.heldout import PATH, held_out_sha256, write_held_out

    write_held_out()
    typer.echo(f"{PATH.name} sha256 {held_out_sha256()}")


@app.command()
def tokenizer(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("tokenizer.json"),
    seed: Seed = 1,
) -> None:
    """Train the tokenizer on the corpus."""
    from infra.demo_model.tokenizer import train_tokenizer

    train_tokenizer(seed).save(str(out))
    typer.echo(f"tokenizer in {out}")


@app.command()
def train(
    *,
    out: Annotated[Path, typer.Option(help="Folder for bf16/ and float32/.")] = Path(
        ".penstock/demo_run"
    ),
    minutes: Annotated[float, typer.Option(help="Wall-clock budget.")] = 60.0,
    seed: Seed = 1,
    processes: Annotated[int, typer.Option(min=1, help="One thread each.")] = 2,
    peak_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 3e-3,
    start_from: Annotated[
        Path | None, typer.Option(help="A float32/ folder to go on from.")
    ] = None,
    mix: Annotated[str, typer.Option(help="Skills to draw more often: `arithmetic,fact`.")] = "all",
    tools_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the chats, how many offer tools.")
    ] = 0.2,
) -> None:
    """Train the weights; with --start-from, keep training and keep that run's tokenizer."""
    from infra.demo_model.tokenizer import train_tokenizer
    from infra.demo_model.train import Plan, train

    out.mkdir(parents=True, exist_ok=True)
    tokenizer_file = out / "tokenizer.json"
    if start_from is None:
        train_tokenizer(seed).save(str(tokenizer_file))
    else:
        tokenizer_file = start_from.parent / "bf16" / "tokenizer.json"
    train(
        Plan(
            out=out, minutes=minutes, seed=seed, processes=processes, peak_rate=peak_rate,
            start_from=start_from, mix=mix, tools_share=tools_share,
        ),
        tokenizer_file,
    )  # fmt: skip


@app.command()
def quantize(
    variant: Annotated[list[str], typer.Option(help="int8, int4 or both.")] = ["int8", "int4"],  # noqa: B006
    parent: Annotated[Path, typer.Option(help="The bf16 folder.")] = WEIGHTS / "bf16",
    out: Annotated[Path, typer.Option(help="Folder of the variants' folders.")] = WEIGHTS,
) -> None:
    """Make the int8 and int4 variants (needs requirements-quantize.txt)."""
    from infra.demo_model.quantize import quantize

    for name in variant:
        quantize(parent, out / name, name)
        typer.echo(f"{name} in {out / name}")


@app.command()
def evaluate(
    *,
    base_url: Annotated[str, typer.Option(help="Endpoint ending in /v1: a gateway or vLLM.")],
    model: Annotated[str, typer.Option(help="The model's name there.")],
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY")] = "none",
    variant: Annotated[str, typer.Option(help="bf16, int8 or int4.")] = "bf16",
    engine_url: Annotated[
        str | None, typer.Option(help="Bare vLLM, for perplexity and speed.")
    ] = None,
    engine_model: Annotated[
        str | None, typer.Option(help="The model's name at the engine.")
    ] = None,
    weights: Annotated[Path, typer.Option(help="Folder of the variants' folders.")] = WEIGHTS,
    out: Annotated[Path, typer.Option(help="The report to write.")] = Path("quality.json"),
) -> None:
    """Ask the held-out questions and write a quality report; wrong answers are shown."""
    from infra.demo_model.evaluate import Target
    from infra.demo_model.evaluate import evaluate as measure
    from infra.demo_model.report import write_report

    logging.getLogger("httpx").setLevel(logging.WARNING)
    target = Target(base_url, api_key, model, variant, weights / variant, engine_url, engine_model)
    report = asyncio.run(measure(target, datetime.now(UTC), typer.echo))
    write_report(out, report)
    overall = report["accuracy"]["overall"]
    for skill, entry in [*report["accuracy"]["by_skill"].items(), ("all", overall)]:
        typer.echo(
            f"{skill:<11}{entry['right']:>4} of {entry['asked']:>3}  {entry['share']:6.1%}"
            f"  (95 %: {entry['low']:.1%} to {entry['high']:.1%})"
        )
    typer.echo(f"perplexity {report['perplexity']}, {report['output_tokens_per_second']} tokens/s")


@app.command()
def calls(
    base_url: Annotated[str, typer.Option(help="Endpoint ending in /v1: a gateway or vLLM.")],
    model: Annotated[str, typer.Option(help="The model's name there.")],
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY")] = "none",
) -> None:
    """Ask for held-out calls of tools, and say how many were right."""
    from openai import AsyncOpenAI

    from infra.demo_model.evaluate import share_called

    async def count() -> tuple[int, int]:
        async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
            return await share_called(client, model, typer.echo)

    logging.getLogger("httpx").setLevel(logging.WARNING)
    right, asked = asyncio.run(count())
    typer.echo(f"{right} of {asked} calls right")


@app.command()
def speed(
    engine: Annotated[list[str], typer.Option(help="VARIANT=URL of bare vLLM; once for each.")],
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    weights: Annotated[Path, typer.Option(help="Folder of the variants' folders.")] = WEIGHTS,
) -> None:
    """Measure engines in turns at 32 streams; the best round goes into each quality report."""
    from infra.demo_model.evaluate import compare_speed, record_speed

    urls = dict(pair.split("=", 1) for pair in engine)
    for name, speeds in asyncio.run(compare_speed(urls, rounds, typer.echo)).items():
        record_speed(weights / name, speeds, datetime.now(UTC))


if __name__ == "__main__":
    app()
