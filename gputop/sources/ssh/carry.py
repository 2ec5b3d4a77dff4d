"""Packs the agent for another machine's Python: its modules, and what they import.

msgspec and psutil are replaced by their stand-ins: their compiled parts fit one Python and
architecture, and msgspec's alone is more than all the rest. A host takes 4 ms of CPU time more a
second for that with 200 processes, and 17 with 1,000.
"""

from __future__ import annotations

import bz2
import hashlib
import importlib.util
import marshal
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from gputop.errors import SourceError
from gputop.sources.ssh.minify import only_mentioned, without_texts, words

_PACKAGE = Path(__file__).resolve().parent.parent.parent
_MODULES = (
    "__init__.py", "__main__.py", "cli.py", "deadline.py", "errors.py", "files.py",
    "output.py", "proc.py", "trust.py", "variables.py", "agent/**/*.py", "model/__init__.py",
    "model/machine/*.py", "model/cuda/__init__.py",
    "model/doctor/__init__.py", "model/health/__init__.py", "model/cuda/enumeration.py",
    "model/cuda/inventory.py", "model/doctor/builds.py",
    "model/health/activity.py", "model/health/throttle.py", "model/health/unaccounted.py",
    "protocol/__init__.py", "protocol/codec.py", "protocol/messages.py", "protocol/split.py",
    "protocol/versions.py", "reservations/__init__.py", "reservations/folder.py",
    "reservations/locks.py", "sources/__init__.py", "sources/ssh/__init__.py", "version.py",
    "sources/ssh/standin/*.py",
)  # fmt: skip
"""The agent's modules, and those of gputop that they import; every host is sent these."""
_PSUTIL = "sources/ssh/standin/psutil.py"
_ERRORS = b"NVML_ERROR_"
"""pynvml makes a class of each of these."""
_FORMAT = 2
"""The format of marshal: one that every Python 3 reads."""
_lock = threading.Lock()
cache_is_allowed = False
"""Whether an agent may stay in the user's cache on the host: the setting `cache_agent`."""

Packer = Literal["bz2", "zlib"]
Module = tuple[str, str, bytes]
"""Name, kind and content, as `loader` takes them."""


class Parcel(NamedTuple):
    """What another machine's Python runs."""

    loader: bytes
    """Its program, as zlib data."""
    offer: bytes
    """The line that follows it."""
    archive: bytes
    """The modules, sent if the loader lacks them."""


def parcel(packer: Packer) -> Parcel:
    """Return the agent for a Python that can unpack it."""
    with _lock:  # many hosts ask at once
        archive = _archive(packer)
    digest = hashlib.sha256(archive).hexdigest()
    offer = f"{len(archive)} {digest} {packer} {int(cache_is_allowed)}\n"
    return Parcel(_loader(), offer.encode(), archive)


@cache
def _archive(packer: Packer) -> bytes:
    modules = [*_gputop(), ("psutil", "module", _own(_PACKAGE / _PSUTIL))]
    named = words(content for _, _, content in modules if b"pynvml" in content)
    pynvml = only_mentioned(Path(_origin("pynvml")).read_bytes(), named, _ERRORS)
    contents = {name: (kind, content) for name, kind, content in modules}
    data = marshal.dumps({**contents, "pynvml": ("module", pynvml)}, _FORMAT)
    return bz2.compress(data) if packer == "bz2" else zlib.compress(data, 9)


@cache
def _loader() -> bytes:
    return zlib.compress(_own(_PACKAGE / "sources/ssh/loader.py"), 9)


def _gputop() -> Iterator[Module]:
    for pattern in _MODULES:
        for path in sorted(_PACKAGE.glob(pattern)):
            parts = path.relative_to(_PACKAGE.parent).with_suffix("").parts
            kind = {"__init__": "package", "__main__": "program"}.get(parts[-1], "module")
            yield ".".join(parts[:-1] if kind == "package" else parts), kind, _own(path)


def _own(path: Path) -> bytes:
    return without_texts(path.read_bytes())


def _origin(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SourceError(f"{module} cannot be found: install gputop again")
    return spec.origin
