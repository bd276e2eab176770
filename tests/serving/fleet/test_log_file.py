"""An engine's log: read as it grows, cut when it is long, asked for the reason of an end."""

from pathlib import Path

import pytest

from serving.fleet import engine_process
from serving.fleet.engine_process import LogFile, last_stage


def test_only_new_and_whole_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r.log"
    log = LogFile(path)
    assert log.new_lines() == []
    path.write_text("one\ntw")
    assert log.new_lines() == ["one"]
    path.write_text("one\ntwo\n")
    assert log.new_lines() == ["two"]


def test_a_long_log_is_cut_while_its_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "BYTES_MAX", 100)
    path = tmp_path / "r.log"
    log = LogFile(path)
    with path.open("ab", buffering=0) as writer:
        writer.write(b"x" * 150 + b"end\n")
        log.trim()
        writer.write(b"after\n")
    assert path.read_text() == "after\n"
    assert len((tmp_path / "r.log.1").read_text()) == 100
    assert log.new_lines() == ["after"]


def test_the_last_error_is_found_in_an_engines_words(tmp_path: Path) -> None:
    path = tmp_path / "r.log"
    path.write_text(
        "INFO fine\n(APIServer pid=1) Traceback (most recent call last):\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause\n"
        "bye\n"
    )
    assert LogFile(path).last_error().startswith("RuntimeError: Engine core")
    assert LogFile(tmp_path / "none.log").last_error() == ""
    path.write_text("usage: engine\nengine: error: argument --slots: invalid int value: 'x'\n")
    assert LogFile(path).last_error() == "error: argument --slots: invalid int value: 'x'"


def test_the_latest_stage_counts() -> None:
    stages = {"a": "first", "b": "second"}
    assert last_stage(["a", "b", "c"], stages.get) == "second"
    assert last_stage(["c"], stages.get) is None
