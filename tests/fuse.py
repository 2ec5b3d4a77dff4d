"""File systems that fail: a FUSE one by hand, which answers and then does not, and a small one.

It speaks as much of the kernel's protocol (fuse(4), include/uapi/linux/fuse.h) as an empty folder
needs, or one with a file, `page`, whose first reading fails, and no later one is ever answered. To
mount it takes root.
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
_OPENDIR, _READDIR, _RELEASEDIR = 27, 28, 29
_OPEN, _READ, _INTERRUPT = 14, 15, 36
_FOLDER, _FILE = 0o40755, 0o100444
_ROOT = 1
_IN_PASSING = _FORGET, _INTERRUPT, _RELEASEDIR
"""Nobody waits for an answer to these."""


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

    def __init__(
        self, folder: Path, user: int = 0, has_page: bool = False, source: str = "dead"
    ) -> None:
        self.folder, self._user, self._has_page = folder, user, has_page
        self._source = source.encode()
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
        if _LIBC.mount(self._source, bytes(self.folder), b"fuse.dead", 6, options.encode()):
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
            _, opcode, unique, node, *_ = _HEADER.unpack_from(request)
            self.requests.append(opcode)
            if self._stopped.is_set():
                if opcode not in _IN_PASSING:
                    self._asked.set()
                continue
            if opcode == _READ and self.requests.count(_READ) > 1:
                self._asked.set()
            elif opcode not in (_FORGET, _INTERRUPT):
                self._reply(opcode, unique, node)

    def _reply(self, opcode: int, unique: int, node: int) -> None:
        status, body = self._answer(opcode, node)
        os.write(self._device, struct.pack("<IiQ", 16 + len(body), status, unique) + body)

    def _answer(self, opcode: int, node: int) -> tuple[int, bytes]:
        if opcode == _INIT:
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 10, 1 << 17, 1, 32, 0, 0)
        if opcode == _GETATTR:
            return 0, struct.pack("<QII", 0, 0, 0) + _attributes(node)
        if opcode == _LOOKUP and self._has_page:
            return 0, struct.pack("<QQQQII", 2, 0, 1, 1, 0, 0) + _attributes(2)
        if opcode == _OPEN:
            return 0, bytes(16)
        if opcode == _READ:
            return -errno.EIO, b""
        if opcode in (_ACCESS, _OPENDIR):
            return 0, bytes(16) if opcode == _OPENDIR else b""
        if opcode == _READDIR:
            return 0, b""
        return -(errno.ENOENT if opcode == _LOOKUP else errno.ENOSYS), b""


def _attributes(node: int) -> bytes:
    mode, size = (_FOLDER, 0) if node == _ROOT else (_FILE, 4096)
    return struct.pack("<QQQQQQIII", node, size, 8, 0, 0, 0, 0, 0, 0) + struct.pack(
        "<IIIIIII", mode, 2, 0, 0, 0, 4096, 0
    )
