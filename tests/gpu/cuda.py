"""A program on a GPU, by ctypes on libcuda.so.1 alone: no toolkit, no framework.

`python -m tests.gpu.cuda ORDINAL MIB` takes memory on a device, says "ready PID", and does what its
standard input says: `alloc MIB`, `free`, `run` (kernels, one after another), `stop`. It ends with
its standard input. `Program` is such a program, seen by the test that started it.
"""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.driver.machine import REPOSITORY

MIB = 1 << 20
_CYCLES, _BLOCKS, _THREADS = 1 << 26, 128, 32
"""Of a kernel: some 40 ms of waiting, on most multiprocessors."""
_PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .pred %again;
    .reg .b64 %begin, %passed, %wanted;
    ld.param.u64 %wanted, [cycles];
    mov.u64 %begin, %clock64;
loop:
    mov.u64 %passed, %clock64;
    sub.s64 %passed, %passed, %begin;
    setp.lt.u64 %again, %passed, %wanted;
    @%again bra loop;
    ret;
}
\0"""


class Device:
    """A device of CUDA, with its primary context."""

    def __init__(self, ordinal: int) -> None:
        """SystemExit, with what CUDA says, if anything fails: so do the methods."""
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            sys.exit(f"libcuda.so.1: {error}")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._blocks: list[ctypes.c_uint64] = []
        self._kernel: ctypes.c_void_p | None = None

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            sys.exit(f"{name} failed with CUDA error {code}")

    def take(self, mib: int) -> None:
        """Take memory."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib * MIB))
        self._blocks.append(address)

    def free(self) -> None:
        """Give the memory that was taken last back."""
        self._call("cuMemFree_v2", self._blocks.pop())

    def spin(self) -> None:
        """Run a kernel to its end."""
        self._kernel = self._kernel or self._load()
        cycles = ctypes.c_uint64(_CYCLES)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
        sizes = (_BLOCKS, 1, 1, _THREADS, 1, 1, 0)
        self._call("cuLaunchKernel", self._kernel, *sizes, None, parameters, None)
        self._call("cuCtxSynchronize")

    def _load(self) -> ctypes.c_void_p:
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self._call("cuModuleGetFunction", ctypes.byref(kernel), module, b"spin")
        return kernel


class Program:
    """This file in a process of its own; a context manager that ends it."""

    def __init__(
        self,
        mib: int,
        ordinal: int = 0,
        variables: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        """Start it, and wait until it holds its memory. AssertionError, with what CUDA says.

        variables: added to its environment; within: the command that it runs under, as unshare.
        """
        command = [*within, sys.executable, "-m", "tests.gpu.cuda", str(ordinal), str(mib)]
        self._process = subprocess.Popen(
            command, env={**os.environ, **(variables or {})}, text=True, cwd=REPOSITORY,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.pid = self._process.pid
        """Its number for us; of what it runs under, if there is that."""
        self.own_pid = int(self._answer())
        """Its number for itself, which is another one in a PID namespace."""

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, *words: object) -> None:
        """Let it do something, and wait until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        self._answer()

    def end(self) -> None:
        """Let it end by itself."""
        self._process.communicate()

    def wait(self) -> None:
        """Wait until something else has ended it."""
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        word, _, rest = self._process.stdout.readline().strip().partition(" ")
        if word != "ready":
            _, error = self._process.communicate()
            raise AssertionError(f"the program on the GPU ended: {error.strip() or 'no reason'}")
        return rest


def main(ordinal: int, mib: int) -> None:
    """Hold memory on a device, and obey."""
    device, is_busy = Device(ordinal), False
    words = ["alloc", str(mib)]
    while words:
        if words[0] == "alloc":
            device.take(int(words[1]))
        elif words[0] == "free":
            device.free()
        is_busy = words[0] == "run" or (is_busy and words[0] != "stop")
        print("ready", os.getpid(), flush=True)
        while is_busy and not select.select([sys.stdin], [], [], 0)[0]:
            device.spin()
        words = sys.stdin.readline().split()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
