"""One line about the machine, for reports."""

import os
import re
from pathlib import Path


def hardware() -> str:
    return f"{os.cpu_count()} cores, {_processor()}, {_memory_gib():.0f} GiB memory, no GPU"


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found.group(1).strip() if found else "unknown processor"


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
