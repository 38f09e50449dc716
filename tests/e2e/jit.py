# SPDX-License-Identifier: GPL-2.0-or-later
"""A compiler at run time in its smallest form: functions that spin, in executable memory without a file.

Tests give programs to `program()`, which runs them with `from jit import *` before their text.
"""
import ctypes
import mmap
import os
import platform
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE = 64
# f(n): counts n down, with a frame of its own.
CODE = {
    "x86_64": bytes.fromhex("554889e54889f948ffc975fb5dc3"),
    "aarch64": bytes.fromhex("000400f1e1ffff54c0035fd6"),
}[platform.machine()]


def program(text):
    """Arguments that run it."""
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {HERE!r}); from jit import *\n" + text]


# As python -X perf makes it for each function: calls its fourth argument, and has no frame pointer.
TRAMPOLINE = bytes.fromhex("f30f1efa4883ec08ffd14883c408c3")


class Memory:
    """Room for functions at fixed places."""

    def __init__(self, functions=16):
        self.map = mmap.mmap(-1, max(functions * SIZE, mmap.PAGESIZE),
                             prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for i in range(functions):
            self.map[i * SIZE:i * SIZE + len(CODE)] = CODE

    def address(self, i=0):
        return self.start + i * SIZE

    def line(self, name, i=0, size=SIZE):
        return f"{self.address(i):x} {size:x} {name}\n"

    def spin(self, seconds, i=0):
        f = ctypes.CFUNCTYPE(None, ctypes.c_long)(self.address(i))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            f(3000000)


    def fill_through_trampoline(self, seconds, i=0):
        """memset() is called by code without a frame pointer."""
        self.map[i * SIZE:i * SIZE + len(TRAMPOLINE)] = TRAMPOLINE
        libc = ctypes.CDLL(None)
        room = ctypes.create_string_buffer(1 << 22)
        f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p)(self.address(i))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            f(ctypes.addressof(room), 1, len(room), ctypes.cast(libc.memset, ctypes.c_void_p))


def map_path(pid=None):
    return f"/tmp/perf-{pid or os.getpid()}.map"


def write(text, path=None, mode="a"):
    with open(path or map_path(), mode) as f:
        f.write(text)
