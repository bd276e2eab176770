"""A wrong variable is named, with what was wanted."""

import pytest

from serving.config import ConfigError, patience


def test_what_is_waited_for_is_waited_for_some_time() -> None:
    assert patience({}, "SECONDS", 10.0) == 10.0
    assert patience({"SECONDS": "0.5"}, "SECONDS", 10.0) == 0.5
    for wrong in ("0", "0.0", "-1", "soon"):
        with pytest.raises(ConfigError, match="SECONDS is"):
            patience({"SECONDS": wrong}, "SECONDS", 10.0)
