"""The version of gputop, and those of what it runs on."""

__version__ = "0.1.0"
_LIBRARIES = ("textual", "nvidia-ml-py", "psutil", "msgspec")


def versions() -> str:
    """Return the versions of gputop, Python and the libraries that gputop uses, as one line."""
    import platform  # slow, and seldom wanted
    from importlib import metadata

    libraries = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    words = ", ".join([f"Python {platform.python_version()}", *libraries])
    return f"gputop {__version__} ({words})"
