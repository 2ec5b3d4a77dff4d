"""What gputop runs, connects to and opens: the rules, and the only place that applies them.

gputop shows other users' processes, and root may run it. Nothing that another user controls may be
executed, connected to or believed with more rights than that user has:

1. A program is never one that a process names: not from its PATH, its environment, its container.
   It is searched in gputop's own PATH. Root runs it only if no other user can change it: it and all
   folders above it, links on the way included, belong to root and only root can write to them.
2. Run by root, a program gets six plain environment variables and `/` as its working directory.
   In all cases it gets no standard input, limits on time and output, a session that ends with it.
3. A socket is never one that a process names. It is the usual one of a container runtime, or comes
   from gputop's own variables; for root, it and the folders above it must belong to root.
4. Only a regular file is opened: no FIFO, device or socket is ever opened for reading.
5. A path that a process names is text: it is never looked up. Of its files only the names in its
   /dev are listed, in `process/mounts.py`, where no user can have mounted what hangs.
6. For root, what its environment brings into gputop itself (variables, PYTHONPATH, the current
   directory, another user's home) counts only as far as it belongs to root as well: variables.py.

"Root" is any user with more rights than one ordinary user: uid 0, a program with capabilities. The
owner of gputop's own files counts as root too: by running gputop, root runs what that user wrote.
"""

from __future__ import annotations

import os
import stat

from gputop.proc import mounts_in, proc_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_USUAL = "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"
_LINKS = 40
"""Links that a path may lead through, as in the kernel."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_UNMAPPED = 65534
"""The uid shown for owners that this user namespace does not map."""
_MOST = 1 << 20
"""Bytes of a file that `read_text` reads: metadata of packages, versions."""

_MOST_FILES = 500_000

SEARCHED = "LD_LIBRARY_PATH", "PYTHONPATH"
"""Search paths for code loaded into gputop; for root, entries that are not root's are removed."""
_PROBE = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"
_MPS = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL_MPS = "/tmp/nvidia-mps"

_elevated: bool | None = None


def is_secret(descriptor: int) -> bool:
    """Whether only the owner may read an open file. A pipe, as of a shell's `<(...)`, is one's
    own."""
    mode = os.fstat(descriptor).st_mode
    return not stat.S_ISREG(mode) or not mode & (stat.S_IRWXG | stat.S_IRWXO)


def _check_regular(about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise OSError("no regular file")


def is_elevated() -> bool:
    """Return whether gputop has more rights than one ordinary user."""
    global _elevated
    if _elevated is None:
        powerful = os.geteuid() == 0 or os.getuid() != os.geteuid() or _capabilities()
        _elevated = bool(powerful) and _several_users()
    return _elevated


def reason_untrusted(path: str, sticky: bool = False) -> str | None:
    """Return why users other than root can change what is at a path; None if they cannot. `sticky`:
    it may be a folder open to all, from which only the owners of files can delete them.

    Every folder on the way is checked, those of links too. Some links of /proc lead elsewhere than
    their text says, as /proc/PID/cwd into another's mounts: none of these is good. In a sticky
    folder (/tmp) no other user can replace a folder of root's; but a file there may be a hard link
    to any other file. OSError.
    """
    todo, current, links = [part for part in path.split("/") if part][::-1], "/", 0
    if not path.startswith("/"):
        return f"{path} is relative"
    about = os.lstat("/")
    if reason := _entry_untrusted("/", about):
        return reason
    while todo:
        part, above = todo.pop(), about
        if part in (".", ".."):
            current = os.path.dirname(current) if part == ".." else current
            about = os.lstat(current)
            continue
        entry = os.path.join(current, part)
        about = os.lstat(entry)
        if reason := _entry_untrusted(entry, about, above):
            return reason
        if not stat.S_ISLNK(about.st_mode):
            current = entry
            continue
        target, links = os.readlink(entry), links + 1
        if links > _LINKS:
            return f"{entry} is a link that leads nowhere"
        current, about = ("/", os.lstat("/")) if target.startswith("/") else (current, above)
        todo += [part for part in target.split("/") if part][::-1]
    if not sticky and stat.S_ISDIR(about.st_mode) and about.st_mode & _OTHERS:
        return f"{current} may be written to by others"
    there = os.stat(path)
    if (there.st_dev, there.st_ino) != (about.st_dev, about.st_ino):
        return f"{path} leads elsewhere than it says"
    return None


def is_roots(path: str, sticky: bool = False) -> bool:
    """Return whether a path exists, and only root can change what is there (`reason_untrusted`)."""
    return _reason_or_error(path, sticky) is None


def find_program(
    name: str, beside: Iterable[str] = (), search: str | None = None
) -> tuple[str | None, str | None]:
    """Return the path of a program in gputop's PATH (or `search`), the folders `beside` or, for
    root without `search`, the usual ones; otherwise None, and why one that was found is not run."""
    reason, own = None, os.environ.get("PATH", "")
    usual = _USUAL if is_elevated() and search is None else ()
    for folder in (*(own if search is None else search).split(":"), *beside, *usual):
        path = f"{folder}/{name}"
        if not (folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        refused = _reason_or_error(path) if is_elevated() else None
        if refused is None:
            return path, None
        reason = reason or f"{path} is not run as root: {refused}"
    return None, reason


def program_environment() -> dict[str, str]:
    """Return the environment for a program that is not part of gputop."""
    if not is_elevated():
        return dict(os.environ)
    home = "/root" if is_roots("/root") else "/"
    path = ":".join(folder for folder in _USUAL if is_roots(folder))
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
            "USER": "root", "LOGNAME": "root"}  # fmt: skip


def probe_environment() -> dict[str, str]:
    """Return the environment for a Python that loads NVIDIA's libraries, or for a user's Python.

    libcuda connects to the MPS server: for root only if the server's folder is root's.
    """
    if not is_elevated():
        return dict(os.environ)
    own = {name: text for name, text in os.environ.items() if name.startswith("GPUTOP_")}
    own.update({name: os.environ[name] for name in _PROBE if name in os.environ})
    own.update({name: text for name in SEARCHED if (text := roots_of(os.environ.get(name, "")))})
    pipes = os.environ.get(_MPS) or _USUAL_MPS
    return {**program_environment(), **own, _MPS: pipes if is_roots(pipes) else "/dev/null"}


def may_connect(path: str) -> bool:
    """Return whether gputop may have a program connect to a socket."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    usable = stat.S_ISSOCK(mode) and os.access(path, os.R_OK | os.W_OK)
    return usable and (not is_elevated() or is_roots(path))


def reason_tree_untrusted(folder: str) -> str | None:
    """Return why users other than root can change a folder or anything below it. OSError."""
    reason, waiting, count, device = reason_untrusted(folder), [folder], 0, os.stat(folder).st_dev
    while waiting and reason is None:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count, about = count + 1, entry.stat(follow_symlinks=False)
                link = stat.S_ISLNK(about.st_mode)
                path = entry.path
                reason = reason_untrusted(path) if link else _entry_untrusted(path, about)
                if about.st_dev != device and (uid := _mounted_by(about.st_dev)):
                    return f"{entry.path} is a file system of uid {uid}'s own making"
                if reason or count > _MOST_FILES:
                    return reason or f"{folder} has too many files to look at"
                if stat.S_ISDIR(about.st_mode):
                    waiting.append(entry.path)
    return reason


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the first MiB of a regular file; empty if it cannot be read."""
    try:
        with open(open_regular(path, os.O_RDONLY), "rb", buffering=0) as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def open_regular(
    path: str | os.PathLike[str],
    flags: int,
    folder: int | None = None,
    check: Callable[[os.stat_result], None] = _check_regular,
) -> int:
    """Return a descriptor of a regular file; with O_NOFOLLOW in `flags`, links are refused.
    `check` raises an error for a file that it refuses. OSError.

    The check comes before the file is opened: opening a device or FIFO has effects, or blocks.
    """
    nofollow = flags & os.O_NOFOLLOW
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | nofollow, dir_fd=folder)
    try:
        check(os.fstat(handle))
        flags = (flags ^ nofollow) | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)


def roots_of(search: str) -> str:
    """Return a search path without the folders that are not root's alone."""
    return ":".join(filter(is_roots, search.split(":")))


def _reason_or_error(path: str, sticky: bool = False) -> str | None:
    try:
        return reason_untrusted(path, sticky)
    except (OSError, ValueError) as error:
        return f"it cannot be looked at: {getattr(error, 'strerror', None) or error}"


def _entry_untrusted(
    path: str, about: os.stat_result, above: os.stat_result | None = None
) -> str | None:
    """Return why others can change an entry of a folder (`above`) that is root's; None if not."""
    if about.st_uid != 0 and about.st_uid != _own_uid():
        return f"{path} belongs to uid {about.st_uid}"
    if above is not None and above.st_mode & _OTHERS and not stat.S_ISDIR(about.st_mode):
        return f"{os.path.dirname(path)} may be written to by others"
    reason = reason_writable(about, above)
    return reason and f"{path} {reason}"


def reason_writable(about: os.stat_result, above: os.stat_result | None = None) -> str | None:
    """Return why others than its owner can change a folder or file, by its mode and file system;
    None if they cannot. The folder `above` must be writable by the owner alone, or sticky."""
    folder = stat.S_ISDIR(about.st_mode)
    sticky = folder and about.st_mode & stat.S_ISVTX
    if (folder or stat.S_ISREG(about.st_mode)) and about.st_mode & _OTHERS and not sticky:
        return "may be written to by others"
    if above is not None and about.st_dev != above.st_dev and (uid := _mounted_by(about.st_dev)):
        return f"is a file system of uid {uid}'s own making"
    return None


def is_unmapped(uid: int) -> bool:
    """Return whether a uid stands for users that this user namespace does not map, as the owner of
    folders of the machine's root does."""
    return uid == _UNMAPPED and not any(
        first <= uid < first + count for first, _, count in _uid_ranges()
    )


def _own_uid() -> int:
    try:
        uid = os.stat(os.path.dirname(os.path.abspath(__file__))).st_uid
    except OSError:  # a carried agent's modules are not files
        return 0
    return 0 if uid == _UNMAPPED else uid


def _uid_ranges() -> list[tuple[int, int, int]]:
    """Return the uid ranges of this namespace, user_namespaces(7): the first uid, its uid outside,
    and the count."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return [(int(first), int(outside), int(count)) for first, outside, count in
                map(str.split, file)]  # fmt: skip


def _mounted_by(device: int) -> int:
    """Return the uid that serves a FUSE file system and can fake its owners; 0 for any other."""
    wanted, user = f"{os.major(device)}:{os.minor(device)}", b"user_id="
    with open("/proc/self/mountinfo", "rb") as lines:
        for mount in mounts_in(lines):
            if mount.device == wanted and mount.kind.startswith("fuse"):
                ids = [word[len(user) :] for word in mount.options if word.startswith(user)]
                return max(map(int, ids), default=0)
    return 0


def _capabilities() -> bool:
    """Return whether this process has effective capabilities."""
    try:
        with open("/proc/self/status", "rb") as file:
            masks = proc_field(file.read(_MOST), b"CapEff")
    except OSError:
        return False
    return any(int(mask, 16) for mask in masks)


def _several_users() -> bool:
    """Return whether there are other users: in a user namespace with a single user, who is not root
    outside, root can only do what that user can."""
    try:
        [(_, outside, count)] = _uid_ranges()
    except (OSError, ValueError):
        return True
    return count != 1 or outside == 0
