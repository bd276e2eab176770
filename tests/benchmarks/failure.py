"""What stops a benchmark: one line that says what is wrong and what to do."""


class BenchmarkFailed(Exception):
    """A figure could not be taken, or would not be true."""
