"""What a carried agent takes of Python 3.10 and Python 3.9 lacks; the loader runs it before others.

`int | None` is evaluated where frames are declared, for which 3.9 has no operator: modules are
compiled with a call in place of each `|`.
"""

from __future__ import annotations

import ast
import ctypes
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, Union

_libc = ctypes.CDLL(None, use_errno=True)


class _Operators(ast.NodeTransformer):
    """Replaces `left | right` by `either(left, right)`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitOr):
            return node
        name = ast.Name("either", ast.Load())
        return ast.copy_location(ast.Call(name, [node.left, node.right], []), node)


def compiled(source: bytes, path: str) -> CodeType:
    tree = ast.fix_missing_locations(_Operators().visit(ast.parse(source)))
    return compile(tree, path, "exec", dont_inherit=True)


def either(left: Any, right: Any) -> Any:
    try:
        return left | right
    except TypeError:
        return Union[left, right]  # noqa: UP007


def _zip(*values: Iterable[Any], strict: bool = False) -> Iterator[tuple[Any, ...]]:
    """Be zip(); gputop is tested where lengths are checked."""
    return zip(*values)  # noqa: B905


def _pairwise(values: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    first, second = itertools.tee(values)
    next(second, None)
    return zip(first, second)  # noqa: B905


def _eventfd(value: int, flags: int) -> int:
    descriptor: int = _libc.eventfd(value, flags)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "eventfd")
    return descriptor


NAMES = {"either": either, "zip": _zip}
"""What modules find beside what is built in."""
_LACKING = (
    (itertools, "pairwise", _pairwise),
    (os, "eventfd", _eventfd),
    (os, "eventfd_read", lambda file: int.from_bytes(os.read(file, 8), sys.byteorder)),
    (os, "eventfd_write", lambda file, number: os.write(file, number.to_bytes(8, sys.byteorder))),
    (os, "EFD_CLOEXEC", os.O_CLOEXEC),  # eventfd(2): they are the same
    (os, "EFD_NONBLOCK", os.O_NONBLOCK),
)
for _module, _name, _function in _LACKING:
    vars(_module).setdefault(_name, _function)
