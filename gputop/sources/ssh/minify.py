"""Leaves out of Python sources what nobody reads on another machine, and keeps the numbers of their
lines: a traceback from there is one of the files here."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TEXT = re.compile(rb'^( *)"""(?:[^"\\]|\\.|"(?!""))*"""$', re.MULTILINE | re.DOTALL)
"""A docstring, as gputop's formatter writes them."""
_COMMENT = re.compile(rb"^ *#.*$", re.MULTILINE)
_STATEMENT = re.compile(rb"^(?=[^\s#)\]}])", re.MULTILINE)
"""Where a statement at the top of a module begins, or a decorator."""
_DEFINITION = re.compile(rb"^(?:def|class) +(\w+)", re.MULTILINE)
_VARIABLE = re.compile(rb"(\w+) *= *(?!\w+ *=[^=])")
_WORD = re.compile(rb"\w+")


def without_texts(source: bytes) -> bytes:
    """Return a source of gputop's without docstrings, and without lines that are a comment."""
    return _COMMENT.sub(b"", _TEXT.sub(_empty, source))


def words(sources: Iterable[bytes]) -> set[bytes]:
    return {word for source in sources for word in _WORD.findall(source)}


def only_mentioned(source: bytes, wanted: set[bytes], prefix: bytes) -> bytes:
    """Return a module without the functions, classes and variables that neither `wanted` nor what
    is left mentions; names that begin with `prefix` stay. A module that is written otherwise than
    expected is returned whole."""
    statements = _statements(source)
    names = [_name(statement) for statement in statements]
    kept = {n for n, name in enumerate(names) if not name or name.startswith(prefix)}
    news = wanted | words(statements[n] for n in kept)
    while more := {n for n, name in enumerate(names) if name in news} - kept:
        kept |= more
        news = words(statements[n] for n in more)
    left = b"".join(s if n in kept else b"\n" * s.count(b"\n") for n, s in enumerate(statements))
    try:
        compile(left, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return source
    return left


def _statements(source: bytes) -> list[bytes]:
    """Return the statements of a module, each with its decorators and what follows it."""
    statements = [b""]
    for part in _STATEMENT.split(source):
        if statements[-1].startswith(b"@") and not _DEFINITION.search(statements[-1]):
            statements[-1] += part
        else:
            statements.append(part)
    return statements


def _name(statement: bytes) -> bytes:
    """Return what a statement defines; empty if it does anything else."""
    named = _DEFINITION.search(statement) or _VARIABLE.match(statement)
    return b"" if named is None else named[1]


def _empty(text: re.Match[bytes]) -> bytes:
    return text[1] + b'""' + b"\n" * text[0].count(b"\n")
