"""What `penstock up` prints works when it is pasted."""

import json
import subprocess
import sys

import pytest

from tests.fixtures.stack import COMMAND_SECONDS_MAX, Stack

pytestmark = pytest.mark.e2e


def snippet(stack: Stack, first_words: str) -> str:
    """Return the printed example that begins with these words, up to the next empty line."""
    start = stack.output.index(first_words)
    return stack.output[start:].split("\n\n")[0]


def test_the_printed_curl_answers(stack: Stack) -> None:
    command = ["bash", "-c", snippet(stack, "curl ") + " --silent --fail-with-body"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
    )
    answer = json.loads(result.stdout)
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0


def test_the_printed_python_answers(stack: Stack) -> None:
    command = [sys.executable, "-c", snippet(stack, "from openai")]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
