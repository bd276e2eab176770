"""`python -m infra.demo_embedder`: make and judge the demo embedder. Imports are late: torch."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

HERE = Path(__file__).parent
WEIGHTS = HERE / "weights" / "bf16"
DEMO_MODEL = HERE.parent / "demo_model" / "weights" / "bf16"

app = typer.Typer(
    help="Make and judge Penstock's demo embedder.", no_args_is_help=True, add_completion=False
)


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = WEIGHTS,
    minutes: Annotated[float, typer.Option(help="Wall-clock budget.")] = 3.0,
    seed: Annotated[int, typer.Option(help="Decides every random choice.")] = 1,
    start_from: Annotated[Path, typer.Option(help="The demo model's bf16 folder.")] = DEMO_MODEL,
) -> None:
    """Train the weights, from the first layers of the demo model."""
    from infra.demo_embedder.train import EmbedderPlan, train

    train(EmbedderPlan(start_from=start_from, out=out, minutes=minutes, seed=seed))


@app.command()
def evaluate(
    *,
    base_url: Annotated[str, typer.Option(help="Endpoint ending in /v1: a gateway or vLLM.")],
    model: Annotated[str, typer.Option(help="The model's name there.")],
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY")] = "none",
    weights: Annotated[Path, typer.Option(help="The weights' folder, for their size.")] = WEIGHTS,
    out: Annotated[Path, typer.Option(help="The report to write.")] = Path("quality.json"),
) -> None:
    """Ask what training never saw, and write a quality report."""
    from infra.demo_embedder.evaluate import EmbeddingTarget
    from infra.demo_embedder.evaluate import evaluate as measure
    from infra.demo_embedder.train import DIMENSIONS
    from infra.demo_model.report import write_report

    target = EmbeddingTarget(base_url, api_key, model, weights)
    report = measure(target, datetime.now(UTC), DIMENSIONS)
    write_report(out, report)
    for kind, entry in report["accuracy"]["by_skill"].items():
        typer.echo(_line(kind, entry))
    for length, entry in report["accuracy_by_dimensions"].items():
        typer.echo(_line(f"{length} numbers", entry))


def _line(name: str, entry: dict[str, float]) -> str:
    return (
        f"{name:<12}{entry['right']:>4} of {entry['asked']:>3}  {entry['share']:6.1%}"
        f"  (95 %: {entry['low']:.1%} to {entry['high']:.1%})"
    )


if __name__ == "__main__":
    app()
