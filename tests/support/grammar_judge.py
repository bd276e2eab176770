"""`python -m tests.support.grammar_judge`: judges by what a schema's text says to do."""

import time

from serving.aside.serve import serve
from serving.contract.grammar import GrammarVerdict


def judge(schemas: tuple[str, ...], _: bytes) -> tuple[GrammarVerdict, bytes]:
    """Refuse `false`, sleep over `slow`, take everything else."""
    for place, schema in enumerate(schemas):
        if schema == "false":
            return GrammarVerdict("refused", place), b""
        if "slow" in schema:
            time.sleep(0.5)
    return GrammarVerdict("good"), b""


if __name__ == "__main__":
    serve(judge, seconds_max=5.0, memory_bytes=2**30)
