"""`python -m serving.engine.grammar_compiler WEIGHTS`: compiles grammars as vLLM does,
to see what it takes.

vLLM's own library and the model's tokenizer are loaded once; each question is tried in a fork that
may be killed. CPU time is what bounds it, so that no verdict depends on how busy the machine is.
"""

import os
import resource
import signal
import sys

import xgrammar
from transformers import AutoTokenizer

from serving.contract.grammar import FORMAT_BLANKS_MAX, GrammarVerdict, Verdict
from serving.contract.weights import weights_source
from serving.offload.worker import serve

CPU_SECONDS_MAX = 2.0
"""For all schemas of one request."""
SECONDS_MAX = 4.0
"""On a machine too busy to give these within it, nobody can tell."""
NICENESS = 10
FORK_BYTES_MAX = 1024**3
"""That a compilation may take on top of what is loaded."""
MEMORY_BYTES = 8 * 1024**3
REFUSED = 1


class GrammarCompiler:
    """Compiles with one tokenizer."""

    def __init__(self, weights: str) -> None:
        source = weights_source(weights)
        tokenizer = AutoTokenizer.from_pretrained(
            source.location, revision=source.revision or "main", local_files_only=True
        )
        known = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
        # More threads would not survive the fork.
        self._compiler = xgrammar.GrammarCompiler(known, max_threads=1, cache_enabled=False)

    def __call__(self, schemas: tuple[str, ...], _: bytes) -> tuple[GrammarVerdict, bytes]:
        """Return what becomes of the schemas."""
        source, sink = os.pipe()
        child = os.fork()
        if not child:
            self._try(schemas, sink)
        os.close(sink)
        with os.fdopen(source, "rb") as progress:
            compiled = len(progress.read())
        status = os.waitpid(child, 0)[1]
        return GrammarVerdict(_verdict(status), min(compiled, len(schemas) - 1)), b""

    def _try(self, schemas: tuple[str, ...], sink: int) -> None:
        """Compile in the fork, and end it: with a byte written for each schema that compiled."""
        resource.setrlimit(resource.RLIMIT_AS, (_size_bytes() + FORK_BYTES_MAX,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
        signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
        try:
            for schema in schemas:
                # As engines are asked for formats; calls have fewer blanks, and cost no more.
                self._compiler.compile_json_schema(schema, max_whitespace_cnt=FORMAT_BLANKS_MAX)
                os.write(sink, b".")
        except MemoryError:
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            os._exit(REFUSED)
        os._exit(0)


def _verdict(status: int) -> Verdict:
    if os.WIFSIGNALED(status):
        return "unknown" if os.WTERMSIG(status) == signal.SIGALRM else "too_complex"
    return "good" if os.WEXITSTATUS(status) == 0 else "refused"


def _size_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 -- read at once, in a fork
        return int(file.read().split()[0]) * resource.getpagesize()


def main(arguments: list[str]) -> None:
    """Load, then answer; engines on the same processors go first."""
    os.nice(NICENESS)
    serve(GrammarCompiler(arguments[1]), seconds_max=2 * SECONDS_MAX, memory_bytes=MEMORY_BYTES)


if __name__ == "__main__":
    main(sys.argv)
