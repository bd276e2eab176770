"""The targets of the slow fuzzing tier hold for what is cheap to try; atheris goes further."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long.fuzz.targets import SEEDS, TARGETS

PIECES = st.sampled_from(
    [
        b'{"model":"demo","messages":[{"role":"user","content":"hi"}]',
        b'{"model":"demo"',
        b"}",
        b',"tools":[{"type":"function","function":{"name":"f","parameters":{',
        b"}}]",
        b'"$ref":"#',
        b',"response_format":',
        b',"prompt":[1,2',
        b"]",
        b',"input":"a"',
        b'"pattern":"(a{9}',
        b"){9}",
        b"data: ",
        b"\n\n",
        b"\r\n\r\n",
        b'{"usage":{"prompt_tokens":1}}',
        b"[DONE]",
        b'{"data":[{"index":0,"embedding":',
        b'"AACAPw=="}',
        b'],"usage":{"prompt_tokens":1}}',
        b"(",
        b"[^a]",
        b"{9,}",
        b"HTTP/1.1 200 OK\r\n",
        b"content-length: 2\r\n",
        b"transfer-encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\n",
        b"expect: 100-continue\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\n",
        b"2\r\nok\r\n",
    ]
)
"""What the parsers look for, so that random bytes get past their first line."""
DATA = st.lists(PIECES | st.binary(max_size=12), max_size=14).map(b"".join)


@pytest.mark.parametrize("name", TARGETS)
@settings(deadline=None, max_examples=150)
@given(data=DATA)
def test_a_target_holds(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_its_seeds_hold_cut_anywhere_near_their_end(name: str) -> None:
    for seed in SEEDS[name]:
        for cut in range(min(len(seed), 12)):
            TARGETS[name](seed[: len(seed) - cut])
