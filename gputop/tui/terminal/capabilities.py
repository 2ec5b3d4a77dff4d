"""What can be known of the terminal before the screen is started; needs no Textual."""

import contextlib
import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

_STREAMS = ("standard input", "standard output", "standard error")
# A terminal of these types cannot move its cursor, so there is nothing to draw a screen with.
_UNFIT_TERMS = frozenset({"dumb", "unknown"})


def unfit_reason(
    environ: Mapping[str, str], isatty: Callable[[int], bool] = os.isatty
) -> str | None:
    """Return why no screen can be started here; None if it can.

    All three streams must be the terminal: keys come from stdin, Textual draws on stderr, and a
    user who redirects stdout wants text there. Without a terminal on stdin the screen would come
    up, take no key, and spin on end-of-file.
    """
    for descriptor, stream in enumerate(_STREAMS):
        if not isatty(descriptor):
            return f"{stream} is not a terminal"
    term = environ.get("TERM", "")
    if not term:
        return "TERM is not set"
    if term in _UNFIT_TERMS:
        return f"TERM={term} cannot move the cursor"
    return None


def reopened(descriptor: int, mode: int) -> int | None:
    """Open the terminal of a descriptor once more, non-blocking; return None if that fails.

    Making the descriptor itself non-blocking would do so for the shell and every other program on
    this terminal. After `su` the terminal may belong to another user; /dev/tty is open to all.
    """
    flags = mode | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    for name in (f"/proc/self/fd/{descriptor}", "/dev/tty"):
        with contextlib.suppress(OSError):
            opened = os.open(name, flags)
            if os.isatty(opened):
                return opened
            os.close(opened)
    return None


def colours(environ: Mapping[str, str]) -> int:
    """Return how many colours will reach the terminal: none under NO_COLOR, otherwise by Rich's
    rules. Like Textual, this takes NO_COLOR as set even if it is empty.
    """
    if "NO_COLOR" in environ:
        return 0
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = environ.get("TERM", "").strip().lower()
    if not term or term in _UNFIT_TERMS:
        return 0
    return 256 if term.endswith(("-256color", "-kitty")) else 16


def drop_inherited_colours(environ: MutableMapping[str, str]) -> None:
    """Forget COLORTERM in GNU screen: it describes the outer terminal, and screen 4 misreads such
    colours. tmux translates them, even inside screen."""
    if "STY" in environ and "TMUX" not in environ:
        environ.pop("COLORTERM", None)


def nearest_theme(name: str, environ: Mapping[str, str]) -> str:
    """Return the wanted theme, or the nearest one that the terminal's colours can show. `auto` is
    ansi-light if COLORFGBG has a light background, as `0;15` has, and otherwise ansi-dark.

    Under NO_COLOR an RGB theme still sends greys, an ANSI theme nothing; and with 16 colours the
    shades of an RGB theme fall together.
    """
    if name == "auto":
        is_light = environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
        return "ansi-light" if is_light else "ansi-dark"
    ansi = name in ("dark", "light") and colours(environ) <= 16
    return f"ansi-{name}" if ansi else name


def initial_environ(
    environ: Mapping[str, str] = os.environ, path: Path = Path("/proc/self/environ")
) -> dict[str, str]:
    """Return the environment that this process was started with; `environ` if that is unknown.

    Under LANG=C or no locale at all, Python changes LC_CTYPE in its own environment (PEP 538).
    """
    try:
        block = path.read_bytes()
    except OSError:
        return dict(environ)
    entries = (os.fsdecode(entry).partition("=") for entry in block.split(b"\0") if entry)
    return {name: value for name, _, value in entries}
