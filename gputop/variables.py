"""The environment variables that gputop keeps when it has more rights than an ordinary user.

`sudo -E` and `su` leave another user's variables to root. Many of them make a library load code,
open or write a file, or connect: OPENSSL_CONF, SSLKEYLOGFILE, LOCPATH, HOSTALIASES, https_proxy.
New ones come with every library, so there is no list of the bad ones: only the variables below are
kept, with a value that is checked here, or each time it is used. This happens before anything else
is imported, for every command and for the agent.

Whose variables they are cannot be known for certain, so root's own are treated alike. Only proxies,
which cannot be judged by their value, depend on whether anything shows another user (foreign_sign).
"""

from __future__ import annotations

import _thread
import os
import sys
from time import monotonic, tzset

from gputop.proc import proc_field
from gputop.trust import SEARCHED, is_elevated, is_roots, roots_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

_SIZES = "COLUMNS", "LINES", "ROWS"
_LARGEST = 1000
"""Columns or lines of the largest terminal: a screen takes memory for each cell."""
_MOST_DIGITS = 9
_PYTHON = (
    "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
    "PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONHASHSEED", "PYTHONCOERCECLOCALE",
    "PYTHONPROFILEIMPORTTIME",
)  # fmt: skip
_PLAIN = "TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "TZ"
"""Names of something, which may not be paths: gettext and libc would open them. LC_* too."""
_DATA = (
    *_PYTHON, *_SIZES, "NO_COLOR", "COLORFGBG", "VTE_VERSION", "KONSOLE_VERSION", "TMUX", "STY",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
    "SLURM_JOB_ID", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "PBS_JOBID", "LSB_JOBID", "_CONDOR_SLOT",
    "APPTAINER_NAME", "SINGULARITY_NAME", "KUBERNETES_SERVICE_HOST", "container", "SSH_CONNECTION",
    "GPUTOP_INTERVAL", "GPUTOP_THEME", "GPUTOP_GLYPHS", "GPUTOP_USER", "GPUTOP_READONLY",
    "GPUTOP_RESERVATION", "GPUTOP_PROMETHEUS_TOKEN",
)  # fmt: skip
"""Text that gputop parses or shows."""
_CHECKED = (
    "PATH", "CUDA_MPS_PIPE_DIRECTORY", "SSH_AUTH_SOCK", "DOCKER_HOST", "CONTAINERD_ADDRESS",
    "CONTAINER_RUNTIME_ENDPOINT", "GPUTOP_SSH_CONFIG", "GPUTOP_PROMETHEUS_HEADERS",
)  # fmt: skip
"""Programs, sockets and files that are checked each time they are used, with an error or a reason
that a user can read."""
_FOLDERS = "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "GPUTOP_LOCKS"
"""Checked once more when they are used (files.py), the last one before it is made
(reservations/folder.py), so they are kept if they do not answer."""
_PATHS = ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "TMPDIR", "CUDA_HOME", "CUDA_PATH", "SSL_CERT_FILE",
          "SSL_CERT_DIR")  # fmt: skip
"""Paths that only root may be able to change, as those in all other variables of gputop's own."""
_PROXIES = "http_proxy", "https_proxy", "all_proxy", "no_proxy"
_MOST_PATHS = 32
_MOST_STATUS = 4096
"""Bytes of /proc/PID/status that are read: users and parent stand before the groups."""
_TIMEOUT = 1.0
"""Seconds for the file systems of all paths to answer."""
_STARTERS = "SUDO_UID", "PKEXEC_UID"
_NO_LOGIN = 0xFFFFFFFF

_initial: dict[str, str] = {}
"""The environment before `drop_untrusted`."""


def drop_untrusted(environ: MutableMapping[str, str]) -> None:
    """For root, keep only what cannot be another user's in this process's environment and module
    path, before it imports or starts anything. The Python environment that gputop runs from stays.
    For everybody, remove sizes that no terminal has, and a variable without a name."""
    getattr(environ, "_data", {}).pop(b"", None)  # os.environ cannot; no program starts with it
    _initial.update(environ)
    if not is_elevated():
        _drop(environ, [name for name in _SIZES if not _is_size(environ.get(name, ""))])
        return
    for name in SEARCHED:
        if name in environ:
            environ[name] = roots_of(environ[name])
    paths = {name: value for name, value in environ.items() if _names_path(name)}
    safe = _safe_paths(paths.values())
    kept = {name for name, value in environ.items() if name not in paths and _is_kept(name, value)}
    kept |= {name for name, value in paths.items() if safe.get(value, name in _FOLDERS)}
    _drop(environ, environ.keys() - kept)
    _drop_modules(environ)
    if environ.get("TZ") != _initial.get("TZ"):
        tzset()


def callers_environment() -> dict[str, str]:
    """Return the environment that gputop was started with, for a program that its user names."""
    return dict(_initial or os.environ)


def foreign_sign() -> str | None:
    """Return what shows that root may have another user's variables; None if nothing does."""
    if os.getuid() != 0:
        return f"user {os.getuid()} runs it, with more rights than usual"
    for name in _STARTERS:
        if callers_environment().get(name, "0") != "0":
            return f"{name} is set"
    if login := login_uid():
        return f"the login is that of user {login}"
    return _ancestor_of_another()


def login_uid() -> int | None:
    """Return the uid that has logged in, which su and sudo do not change (pam_loginuid); None if
    nobody has, or if the kernel does not tell."""
    try:
        with open("/proc/self/loginuid", encoding="ascii") as file:
            login = int(file.read())
    except (OSError, ValueError):  # a kernel without audit
        return None
    return None if login == _NO_LOGIN else login


def _drop(environ: MutableMapping[str, str], names: Iterable[str]) -> None:
    for name in names:
        environ.pop(name, None)


def _names_path(name: str) -> bool:
    """Whether a variable is kept if its value is a path that only root can change."""
    if name in _FOLDERS or name in _PATHS:
        return True
    return name.startswith("GPUTOP_") and name not in _DATA and name not in _CHECKED


def _is_kept(name: str, value: str) -> bool:
    """Whether a variable that names no path is kept."""
    if name in _SIZES:
        return _is_size(value)
    if name in _PLAIN or name.startswith("LC_"):
        return _is_plain(value, "/:" if name == "TZ" and value[:1] not in ("/", ":") else "")
    if name.lower() in _PROXIES:
        return foreign_sign() is None
    return name in _DATA or name in _CHECKED or name in SEARCHED


def _is_size(value: str) -> bool:
    digits = value.isascii() and value.isdecimal() and len(value) < _MOST_DIGITS
    return digits and 0 < int(value) <= _LARGEST


def _is_plain(value: str, more: str = "") -> bool:
    allowed = "._-+@,;=<> " + more
    letters = all(letter.isalnum() or letter in allowed for letter in value)
    return value.isascii() and letters and ".." not in value


def _safe_paths(paths: Iterable[str]) -> dict[str, bool]:
    """Return which of these paths only root can change, as far as their file systems answer: one
    that does not keeps no other from it. Nothing is imported for it (deadline.py): another user's
    module might be."""
    answers: dict[str, bool] = {}
    looks = []
    for path in list(dict.fromkeys(paths))[:_MOST_PATHS]:
        done = _thread.allocate_lock()
        done.acquire()
        _thread.start_new_thread(_look, (path, answers, done))
        looks.append(done)
    end = monotonic() + _TIMEOUT
    for done in looks:
        done.acquire(timeout=max(0.0, end - monotonic()))
    return dict(answers)


def _look(path: str, answers: dict[str, bool], done: _thread.LockType) -> None:
    try:
        answers[path] = _is_or_will_be_roots(path)
    finally:
        done.release()


def _is_or_will_be_roots(path: str) -> bool:
    """Return whether only root can change what is at a path or, if nothing is, make it."""
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return is_roots(above, sticky=above == path)


def _drop_modules(environ: MutableMapping[str, str]) -> None:
    """Remove the folders from Python's search path that are not root's alone."""
    own = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    kept = [path for path in sys.path if _is_below(path, own) or is_roots(path)]
    if len(kept) < len(sys.path):
        environ["PYTHONNOUSERSITE"] = "1"
    sys.path[:] = kept
    if sys.pycache_prefix is not None and not is_roots(sys.pycache_prefix):
        sys.pycache_prefix = None


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _ancestor_of_another() -> str | None:
    """Return the first process above this one that is not root's; None if all are."""
    pid = os.getppid()
    while pid:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                status = file.read(_MOST_STATUS)
            uid, parent = (int(proc_field(status, name)[0]) for name in (b"Uid", b"PPid"))
        except (OSError, IndexError):
            return f"process {pid}, which started it, cannot be read"
        if uid != 0:
            return f"it was started from process {pid} of user {uid}"
        pid = parent
    return None
