"""The versions of gputop and of what it runs on."""

from __future__ import annotations

import platform
from importlib import metadata

from gputop.version import __version__

_LIBRARIES = ("textual", "nvidia-ml-py", "psutil", "msgspec")


def versions() -> str:
    """Return the versions of gputop, Python and the libraries that gputop uses, as one line."""
    libraries = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    words = ", ".join([f"Python {platform.python_version()}", *libraries])
    return f"gputop {__version__} ({words})"
