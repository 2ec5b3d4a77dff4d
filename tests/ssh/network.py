"""A network for ssh's ProxyCommand, as `python network.py PORT FILE [BYTES_A_SECOND]`: it counts in
a file what has gone to the host, and is as slow as is wanted."""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from pathlib import Path

from tests.sshd import Sshd


def through(sshd: Sshd, counted: Path, rate: int = 0) -> str:
    """The line of ssh's configuration for a host behind such a network."""
    return f"ProxyCommand env -C / {sys.executable} {__file__} {sshd.port} {counted} {rate or ''}"


def main(port: int, counted: str, rate: float) -> None:
    """Carry everything both ways, until one side ends."""
    sent, sink = 0, sys.stdout.buffer
    count = os.open(counted, os.O_WRONLY | os.O_CREAT)
    with socket.create_connection(("127.0.0.1", port)) as there:
        while True:
            ready, _, _ = select.select([sys.stdin, there], [], [])
            if there in ready:
                if not (data := there.recv(1 << 16)):
                    return
                sink.write(data)
                sink.flush()
            if sys.stdin in ready:
                if not (data := os.read(0, 1 << 11 if rate else 1 << 16)):
                    return
                there.sendall(data)
                sent += len(data)
                os.pwrite(count, b"%10d" % sent, 0)
                time.sleep(len(data) / rate if rate else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]) if sys.argv[3:] else 0)
