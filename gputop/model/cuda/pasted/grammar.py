"""tree-sitter's grammar of bash, imported where a text needs it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from gputop.model.cuda.pasted.outcome import UnclearError

Node = Any
"""Of tree-sitter's tree."""
_MOST_STEPS = 1_000
"""Calls of its progress: 160 for 16 kB of loops, 700 for 4,000 parts of one pipeline. What is no
text of a shell at all can take it minutes."""
_CHUNK = 4096


def parse(source: bytes) -> Node:
    """Return the root of the tree; UnclearError where there is none."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        raise UnclearError("to read shell lines install tree-sitter and tree-sitter-bash") from None
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    steps = count()
    try:
        root = parser.parse(
            lambda start, _: source[start : start + _CHUNK],
            progress_callback=lambda *_: next(steps) > _MOST_STEPS,
        ).root_node
    except ValueError:
        raise UnclearError("it takes too many steps to read") from None
    if root.has_error:
        raise UnclearError("it is not a complete line of a POSIX shell or bash")
    return root


def within(node: Node) -> Iterator[Node]:
    """Yield all that is inside, without recursion."""
    waiting = list(node.children)
    while waiting:
        child = waiting.pop()
        yield child
        waiting += child.children
