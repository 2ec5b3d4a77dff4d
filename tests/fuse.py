"""File systems that fail: a FUSE one by hand, which answers and then does not, and a small one.

It speaks as much of the kernel's protocol (fuse(4), include/uapi/linux/fuse.h) as an empty folder
needs. To mount it takes root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import require_root

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2
_HEADER = struct.Struct("<IIQQIIII")
_INIT, _GETATTR, _LOOKUP, _ACCESS, _FORGET = 26, 3, 1, 34, 2
_OPENDIR, _READDIR = 27, 28
_FOLDER = 0o40755


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of 64 KiB."""
    require_root()
    if _LIBC.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, b"size=64k,mode=700"):
        pytest.skip("root may not mount here")
    yield
    _LIBC.umount2(bytes(folder), _DETACH)


class Fuse:
    """Mounted while the context lasts. Without `serve` nothing is ever answered, not even the
    first request; after `stop` nothing any more."""

    def __init__(self, folder: Path, user: int = 0) -> None:
        self.folder, self._user = folder, user
        self.requests: list[int] = []
        """Opcodes that came, answered or not."""
        self._stopped = threading.Event()
        self._asked = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Fuse:
        require_root()
        if not os.path.exists("/dev/fuse"):
            pytest.skip("needs /dev/fuse: modprobe fuse")
        self._wake = os.pipe()
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40000,user_id={self._user},group_id=0,allow_other"
        if _LIBC.mount(b"dead", bytes(self.folder), b"fuse.dead", 6, options.encode()):
            os.close(self._device)
            raise OSError(ctypes.get_errno(), "mount")
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Let go whoever waits for an answer: the kernel ends the connection with the device."""
        if self._ended:
            return
        self._ended = True
        self._stopped.set()
        os.write(self._wake[1], b".")
        if self._thread is not None:
            self._thread.join()
        os.close(self._device)
        _LIBC.umount2(bytes(self.folder), _DETACH)
        for end in self._wake:
            os.close(end)

    def serve(self) -> None:
        """Answer from now on."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer no more: requests come in, and stay."""
        self._stopped.set()

    def wait_until_asked(self, seconds: float = 5.0) -> bool:
        """Wait for a request that is not answered."""
        return self._asked.wait(seconds)

    def _run(self) -> None:
        while self._wake[0] not in select.select([self._device, self._wake[0]], [], [])[0]:
            try:
                request = os.read(self._device, 1 << 18)
            except OSError:
                return
            _, opcode, unique, *_ = _HEADER.unpack_from(request)
            self.requests.append(opcode)
            if self._stopped.is_set():
                self._asked.set()
                continue
            if opcode == _FORGET:
                continue
            status, body = self._answer(opcode)
            os.write(self._device, struct.pack("<IiQ", 16 + len(body), status, unique) + body)

    def _answer(self, opcode: int) -> tuple[int, bytes]:
        if opcode == _INIT:
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 10, 1 << 17, 1, 32, 0, 0)
        if opcode == _GETATTR:
            times = struct.pack("<QQQIII", 0, 0, 0, 0, 0, 0)
            return 0, struct.pack("<QII", 0, 0, 0) + struct.pack("<QQQ", 1, 0, 0) + times + (
                struct.pack("<IIIIIII", _FOLDER, 2, 0, 0, 0, 4096, 0)
            )
        if opcode in (_ACCESS, _OPENDIR):
            return 0, bytes(16) if opcode == _OPENDIR else b""
        if opcode == _READDIR:
            return 0, b""
        return -(errno.ENOENT if opcode == _LOOKUP else errno.ENOSYS), b""
