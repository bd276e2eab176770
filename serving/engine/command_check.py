"""Judges commands of vLLM as the installed release would when it starts, in a process that keeps it
imported: 7 s once, then 10 ms a command.

It knows arguments and the weights' configuration: unknown flags, sizes that divide no heads, a
context that the model does not have, quantization without its files. It knows no memory of GPUs.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from serving.offload.worker import serve

MODULE = ("serving.offload.worker", "serving.engine.command_check:main")
SECONDS_MAX = 30.0
MEMORY_BYTES = 256 * 1024**3
"""Of addresses, which libraries for GPUs reserve by the hundred gigabytes and do not use."""
REASON_CHARACTERS_MAX = 400


class CommandVerdict(NamedTuple):
    """`problem` is why vLLM would refuse the command, empty if it would not; `unjudged` is why that
    could not be found out."""

    problem: str = ""
    unjudged: str = ""


class BadArguments(Exception):
    """The parser refuses the arguments; the message is its own."""


class CommandJudge:
    """Holds vLLM's parser of arguments."""

    def __init__(self) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser_type: Any = FlexibleArgumentParser
        self._parser = _raising(make_arg_parser(parser_type()))
        self._validate: Callable[[Any], None] = validate_parsed_serve_args
        self._engine_arguments: Any = AsyncEngineArgs

    def __call__(
        self, question: tuple[tuple[str, ...], dict[str, str]], _: bytes = b""
    ) -> tuple[CommandVerdict, bytes]:
        """Judge the arguments that follow vLLM's module, in the engine's environment."""
        arguments, environment = question
        before = dict(os.environ)
        os.environ.update(environment)
        try:
            return self._judge(arguments), b""
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _judge(self, arguments: Sequence[str]) -> CommandVerdict:
        try:
            parsed = self._parser.parse_args([*arguments])
            self._validate(parsed)
            # What is not on this host would be downloaded for a verdict.
            if Path(parsed.model).is_dir():
                self._engine_arguments.from_cli_args(parsed).create_engine_config()
        except (BadArguments, ValueError, TypeError, NotImplementedError, OSError) as error:
            return CommandVerdict(problem=_reason(error))
        except Exception as error:
            return CommandVerdict(unjudged=f"{type(error).__name__}: {_reason(error)}")
        return CommandVerdict()


def path_problem(arguments: Iterable[str], roots: Sequence[Path]) -> str:
    """Return what is wrong with the paths among arguments: a file that is not there, or one outside
    the folders that weights are kept in, where these are known. Empty if nothing is."""
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("-") else argument
        if not value.startswith(("/", "./", "../")):
            continue
        path = Path(value).resolve()
        if roots and not any(path.is_relative_to(root.resolve()) for root in roots):
            folders = ", ".join(map(str, roots))
            return f"{value} is outside the weights' folders ({folders}); move it there"
        if not path.exists():
            return f"{value} is not there; put the file on the fleet's host, or correct its path"
    return ""


def _raising(parser: Any) -> Any:
    """Let a parser raise BadArguments instead of ending the process."""

    def refuse(message: str) -> NoReturn:
        raise BadArguments(message)

    parser.error = refuse
    return parser


def _reason(error: Exception) -> str:
    """Return the first lines of an error that say something, without pydantic's frame."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("For further information", "1 valid"))]
    return " ".join(told).partition(" [type=")[0][:REASON_CHARACTERS_MAX]


def main() -> None:
    """Import vLLM, which is to log nothing here, then answer."""
    os.environ["VLLM_CONFIGURE_LOGGING"] = "0"
    serve(CommandJudge(), seconds_max=SECONDS_MAX, memory_bytes=MEMORY_BYTES)
