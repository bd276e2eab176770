"""A plugin of vLLM's: asks Linux for the processor's matrix tiles (Intel AMX) before they are used.

Linux gives a process its 8 KiB of tiles only on request, and ends with SIGILL one that uses them
unasked (https://docs.kernel.org/arch/x86/xstate.html). vLLM's attention on CPUs chooses them by
what the processor has and asks nobody. The permission does not outlive exec, and vLLM's workers are
programs of their own, so that only a plugin, which each of them loads, is in time.
"""

import ctypes
import platform
import sys

ARCH_PRCTL = 158
"""The number of the system call on x86-64."""
REQUEST_PERMISSION = 0x1023
TILE_DATA = 18
"""Tiles' number among the processor's states."""


def ask_for_tiles() -> bool:
    """Ask, and return whether this process may use tiles: not where there are none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0
