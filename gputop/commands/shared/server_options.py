"""Where a command listens and who may connect: an argparse type, TLS and passwords."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from gputop.commands.shared.values import read_file
from gputop.errors import UsageError
from gputop.files import reason_of
from gputop.model.machine.text import printable
from gputop.output import complain

T = TypeVar("T")
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)\]|([\w.-]+)):([0-9]{1,5})", re.ASCII)

_TOKEN = re.compile(r"[A-Za-z0-9_-]{24,128}")


class Address(NamedTuple):
    """A name or an IP address, and a port; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def address(text: str) -> Address:
    """Return what HOST:PORT means, for argparse."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HOST:PORT, as 127.0.0.1:19400 or [::1]:19400 (0.0.0.0 is everywhere)"
        )
    return Address(match[1] or match[2], int(match[3]))


def tls_context(
    certificate: str | None, key: str | None, client_ca: str | None
) -> ssl.SSLContext | None:
    """Return the TLS context of a server, None without a certificate. With `client_ca`, clients
    need a certificate signed by it. UsageError."""
    if certificate is None:
        if key is not None or client_ca is not None:
            raise UsageError("TLS needs --tls-cert: the certificate of this server")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without `password`, OpenSSL would ask for that of a key at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        files = ", ".join(filter(None, (certificate, key, client_ca)))
        reason = printable(reason_of(error), 200)
        raise UsageError(f"TLS with {printable(files)} is not possible: {reason}") from None
    return context


class Reloader(Generic[T]):
    """What is made of files, and made anew once one of them has changed."""

    def __init__(self, make: Callable[[], T], *paths: str | None) -> None:
        """`make` raises UsageError: at first for the caller, later it is said, and what was made
        before stays."""
        self._make, self._paths = make, [path for path in paths if path is not None]
        self._seen = list(map(_version, self._paths))
        self._made = make()

    def __call__(self) -> T:
        seen = list(map(_version, self._paths))
        if seen != self._seen:
            self._seen = seen
            self.renew()
        return self._made

    def renew(self) -> None:
        """Make it anew, if it is of files at all."""
        if not self._paths:
            return
        try:
            self._made = self._make()
        except UsageError as error:
            complain(f"{error}; what was read before still counts")
        else:
            complain(f"read anew: {printable(', '.join(self._paths), 400)}")


def _version(path: str) -> tuple[int, ...] | None:
    """Return what changes with the content of a file; None if there is none."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_mode


def authorization(path: str | None) -> str | None:
    """Return the Authorization header for a file with the line USER:PASSWORD. UsageError, also if
    other users may read the file."""
    if path is None:
        return None
    line = _secret_line(path)
    user, colon, password = line.partition(":")
    if not (user and colon and password):
        raise UsageError(f"{printable(path)} must be one line, USER:PASSWORD")
    return f"Basic {b64encode(line.encode()).decode()}"


def token_of(path: str) -> str:
    """Return the secret part of an address, from a file. UsageError, also if other users may read
    the file."""
    token = _secret_line(path)
    if _TOKEN.fullmatch(token) is None:
        raise UsageError(
            f"{printable(path)} must be one line of 24 to 128 letters, digits, - and _,"
            " as openssl rand -hex 16 makes it"
        )
    return token


def _secret_line(path: str) -> str:
    """Return the one line of a file; empty if it has more. UsageError if others may read it."""
    text = read_file(path, secret=True).decode("utf-8", "replace").strip()
    return "" if "\n" in text else text
