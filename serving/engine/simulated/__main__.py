"""`python -m serving.engine.simulated`: a simulated engine as a process of its own."""

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Sequence

import uvloop

from serving.engine.simulated.server import SimulatedServer
from serving.engine.simulated.settings import Fault, SimulatorSettings, parse_fault


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    default = SimulatorSettings()
    grammar = argparse.ArgumentParser(
        prog="python -m serving.engine.simulated",
        description="A simulated engine that speaks vLLM's HTTP. Unpaced by default.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = grammar.add_argument
    add("--served-model-name", dest="models", nargs="+", default=["simulated"], metavar="NAME")
    add("--host", default=default.host)
    add("--port", type=int, default=default.port, help="0 picks a free one")
    add("--seed", type=int, default=default.seed, help="the same seed says the same words")
    add("--context-tokens", type=int, default=default.context_tokens)
    add("--slots", type=int, default=default.slots, help="sequences worked on at once")
    add("--output-tokens", type=int, default=default.output_tokens, help="mean length of answers")
    add("--dimensions", type=int, default=default.dimensions, help="length of vectors")
    add("--itl-seconds", type=float, default=default.itl_seconds, help="time a token; 0: no pace")
    add("--prefill-tokens-per-second", type=float, default=default.prefill_tokens_per_second)
    add("--block-size", type=int, default=default.block_size, help="tokens in a prefix block")
    add("--cache-blocks", type=int, default=default.cache_blocks, help="0: no prefix cache")
    add("--kv-cache-tokens", type=int, default=default.kv_cache_tokens, help="0: no bound")
    add("--load-seconds", type=float, default=default.load_seconds, help="wait before listening")
    add(
        "--fault",
        dest="faults",
        action="append",
        default=[],
        metavar="KIND[:NAME=VALUE,...]",
        help="may be repeated; names: times, after_chunks, seconds, status",
    )
    return grammar


def read(arguments: Sequence[str]) -> tuple[SimulatorSettings, list[Fault]]:
    """Read the command line. Raises ValueError that names a bad value."""
    given = vars(parser().parse_args(arguments))
    faults = [parse_fault(text) for text in given.pop("faults")]
    return SimulatorSettings(**given | {"models": tuple(given["models"])}), faults


async def serve(settings: SimulatorSettings, faults: list[Fault]) -> None:
    """Load, listen, and serve until SIGTERM or SIGINT."""
    _say(f"loading for {settings.load_seconds:g} s")
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.load_seconds or 0.001):
            await stopping.wait()
        return
    server = SimulatedServer(settings, faults)
    await server.start()
    _say(f"listening on http://{settings.host}:{server.port} as {', '.join(settings.models)}")
    await stopping.wait()
    await server.stop()


def main() -> None:
    """Run until told to stop; exit code 2 for a bad argument."""
    try:
        settings, faults = read(sys.argv[1:])
    except ValueError as error:
        parser().error(str(error))
    try:
        uvloop.run(serve(settings, faults))
    except OSError as error:
        raise SystemExit(f"cannot listen on {settings.host}:{settings.port}: {error}") from error


def _say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} simulated engine: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
