"""`gputop doctor --report`: an archive to send with a bug report."""

from __future__ import annotations

import os
import platform
import re
import tarfile
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from msgspec.structs import replace

from gputop.commands.config import document
from gputop.errors import GputopError, UsageError
from gputop.export.json import frame_json
from gputop.files import chosen_parent, reason_of
from gputop.model.doctor.redaction import LEFT_OUT
from gputop.model.machine.finding import Finding
from gputop.model.machine.frame import Frame
from gputop.model.machine.secrets import masked
from gputop.model.machine.text import printable
from gputop.settings import read, user_named
from gputop.version import versions

_LOOKS = 3
"""Frames in the archive, the last ones: they have rates and what is read late."""
_COMPARE = (
    "If a number is wrong: in a clone of gputop `pytest -m gpu` compares all of them with"
    " nvidia-smi and the CUDA driver, in ten minutes, and writes a page to send along."
)
_HOMES = re.compile(r"/home/[^/\s]+")


def harmless_check(check: Finding) -> Finding:
    """Return a check without home directories and without the user who runs gputop."""
    advice = _anonymous(check.advice)
    return replace(check, text=_anonymous(check.text), advice=advice)


def write_archive(path: str, texts: dict[str, str]) -> None:
    """Write texts by name into a new .tar.gz that only its user can read. GputopError."""
    try:
        parent, name = chosen_parent(path)
        with parent:
            parent.create(name, _archive(texts))
    except FileExistsError:
        raise GputopError(f"{printable(path)} exists: give another name") from None
    except (OSError, ValueError) as error:
        raise GputopError(f"{printable(path)} cannot be written: {reason_of(error)}") from None


def _archive(texts: dict[str, str]) -> bytes:
    whole = BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as files:
        for name, text in texts.items():
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), int(time.time())
            files.addfile(entry, BytesIO(data))
    return whole.getvalue()


def attachments(frames: Sequence[Frame], whole: bool) -> dict[str, str]:
    """Return the report's other files by name; `whole`: with user and paths in the settings."""
    frame = frames[-1]
    driver = f"driver {frame.driver_version}, CUDA {frame.cuda_version}"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    terminal = " ".join(f"{name}={os.environ.get(name, '')}" for name in ("TERM", "LANG", "LC_ALL"))
    return {
        "frames.jsonl": "".join(f"{frame_json(frame)}\n" for frame in frames[-_LOOKS:]),
        "versions.txt": "\n".join((versions(), driver, system, terminal, "")),
        "config.toml": _settings(whole),
    }


def contents(texts: dict[str, str], path: str, whole: bool) -> str:
    sizes = "\n".join(f"  {name:12}  {len(text):>7} characters" for name, text in texts.items())
    out = (
        "left out: only what may be a secret in command lines and variables; read the file before"
        " you send it"
        if whole
        else f"left out: {LEFT_OUT}; user, groups and notify_command of the settings.\n"
        "What stays: names and numbers of GPUs (serial numbers, too), PIDs, paths of libraries."
        " --with-commands leaves out only what may be a secret."
    )
    return f"{printable(path)} holds\n{sizes}\n{out}\n{_COMPARE}\n"


def _settings(whole: bool) -> str:
    try:
        settings = read()
    except UsageError as error:
        return f"# {error if whole else _anonymous(str(error))}\n"
    if whole:
        shown = replace(settings, notify_command=masked(settings.notify_command))
    else:
        shown = replace(settings, user=None, groups={}, notify_command="")
    return document(shown, "what holds", {}, {})


def _anonymous(text: str) -> str:
    """Return text without home directories, and without our user in a path or usermod command."""
    home, user = str(Path.home()), user_named("me") or ""
    if home != "/":
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)  # /home/al is not in /home/alice
    text = re.sub(rf"(?<=/){re.escape(user)}(?=/)|(?<= ){re.escape(user)}(?=,)", "user", text)
    return _HOMES.sub("~", text)
