"""Headers of HTTP requests. They are secrets: no error repeats what is in one."""

from __future__ import annotations

import re

from gputop.errors import UsageError

_NAME = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)
"""A token of RFC 9110, 5.6.2."""


def header_of(line: str) -> tuple[str, str] | None:
    """Return the name and the value in `Name: value`; None for any other line."""
    name, colon, value = (part.strip(" \t") for part in line.partition(":"))
    if not (colon and _NAME.fullmatch(name) and _is_value(value)):
        return None
    return name, value


def bearer(token: str, variable: str) -> str:
    """Return the value of an Authorization header. UsageError names the variable of the token."""
    if not _is_value(token):
        raise UsageError(
            f"{variable} has a character that no header can contain, as a newline: set it again"
        )
    return f"Bearer {token}"


def _is_value(value: str) -> bool:
    return value.isascii() and value.isprintable()
