"""Processes held by a pidfd: the signal reaches that process even if its PID is reused.

The descriptor is opened first, then the start is compared, to the tick: if the process is not the
intended one, nothing is sent. Nothing else in gputop sends signals to processes that a user picks.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Set

from gputop.agent.process.namespaces import in_first_namespace, local_process, why_not_local
from gputop.agent.process.procfs import read_bounded, read_file, read_if_any
from gputop.agent.process.reader import READER
from gputop.agent.process.stat import command_of, read_stat
from gputop.agent.process.users import real_uid
from gputop.model.machine.proc_stat import ProcStat, parse_stat
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import SignalOutcome, signal_name
from gputop.model.machine.text import printable
from gputop.proc import proc_field

_PF_KTHREAD = 0x00200000
"""The flag in /proc/PID/stat of a kernel thread, which has no program and takes no signal
(include/linux/sched.h)."""
_MOST_STATUS = 1 << 20
"""Bytes of /proc/PID/status that are read: before the masks it has 65,536 groups at most."""


class NotSentError(Exception):
    """Nothing was sent; the text says why."""

    def __init__(self, outcome: SignalOutcome, words: str) -> None:
        super().__init__(words)
        self.outcome: SignalOutcome = outcome


class ProcessHandle:
    """A process; close it. NotSentError if the PID of `target` is free, or another process's.

    vouched: processes that are accepted without holding a GPU.
    """

    def __init__(self, target: ProcessId, vouched: Set[ProcessId]) -> None:
        self.pid = target.pid
        self.fd = _open(target)
        try:
            stat = self._compared(target)
            if stat.flags & _PF_KTHREAD:
                raise NotSentError("refused", _KERNELS)
            self.ticks = stat.start_ticks
            expected = target in vouched or local_process(self.pid)
            if not (expected or self.ended):  # an ended one shows nothing and gets no signal
                raise _elsewhere(self.pid)
            self.uid = real_uid(self.pid)
            shown = self._stat()
            self.command = None if shown is None else command_of(self.pid, shown)
        except (OSError, ValueError, MemoryError) as error:
            self.close()
            raise _unseen(error) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def ended(self) -> bool:
        """Whether all its threads have ended, reaped by its parent or not."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def reaped(self) -> bool:
        """Whether its parent has reaped it, for a process that has ended."""
        return self.state not in "Zx"

    @property
    def parent(self) -> int | None:
        """The pid of its parent; None once it is reaped."""
        stat = self._stat()
        return None if stat is None else stat.parent

    @property
    def state(self) -> str:
        """The letter of /proc/PID/stat; `X` once it is reaped."""
        stat = self._stat()
        return "X" if stat is None else stat.state

    @property
    def ignored(self) -> tuple[int, ...]:
        """The signals that it is known to ignore."""
        mask = _status(self.pid, "SigIgn")
        numbers = () if self.ended else signal.valid_signals()  # the PID may be another's by now
        return tuple(sorted(int(number) for number in numbers if mask >> (number - 1) & 1))

    def discards(self, number: int) -> bool:
        """Return whether the kernel drops the signal when it is sent: the process ignores it, does
        not block it and has no tracer that would see it (sig_ignored in kernel/signal.c)."""
        blocked = _status(self.pid, "SigBlk") >> (number - 1) & 1
        return not (blocked or _status(self.pid, "TracerPid")) and number in self.ignored

    def send(self, number: int) -> None:
        """Send a signal; NotSentError if the process has ended or we may not signal it."""
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            raise NotSentError("gone", _GONE) from None
        except PermissionError:
            name = signal_name(number or signal.SIGTERM).removeprefix("SIG")
            words = f"not permitted; this would do it: sudo kill -{name} {self.pid}"
            raise NotSentError("not_permitted", words) from None
        except OSError as error:
            raise _unable(error) from None

    def already_ended_error(self) -> NotSentError:
        """Return the error for a process that has ended."""
        parent = self.parent
        if parent is None or self.reaped:
            return NotSentError("gone", _GONE)
        stat = read_stat(parent)
        name = printable(stat.name) if stat else "?"
        words = (
            f"it has ended, but its parent {parent} ({name}) has not waited for it: it goes away"
        )
        return NotSentError("zombie", f"{words} when that waits for it or ends")

    def why_alive(self, number: int) -> tuple[SignalOutcome, str]:
        """Return what keeps it from ending after a signal, and what to do."""
        name, state = signal_name(number), self._steady_state()
        if state == "D":
            where = _kernel_function(self.pid)
            return "uninterruptible", (
                f"it waits in the kernel{where} (state D), and takes signals only when that call "
                "comes back; SIGKILL ends some such calls, and for the others only a reboot helps"
            )
        if number == signal.SIGKILL:
            return "alive", "SIGKILL was sent, and the kernel is still taking it down: wait"
        if state == "t":
            tracer = _status(self.pid, "TracerPid")
            return "ignored", (
                f"process {tracer} traces it, and has stopped it: it takes {name} only when that "
                "lets it continue; SIGKILL ends it now"
            )
        if state == "T":
            return "ignored", (
                f"it is stopped, and takes {name} only when it continues (kill -CONT {self.pid}); "
                "SIGKILL ends it as it is"
            )
        for mask, does in (("SigIgn", "ignores"), ("SigBlk", "blocks"), ("SigCgt", "handles")):
            if _status(self.pid, mask) >> (number - 1) & 1:
                goes_on = " and continues" if does == "handles" else ""
                return "ignored", f"it {does} {name}{goes_on}; SIGKILL ends it"
        if _status(self.pid, "NSpid") == 1:
            words = f"it is the first process of its PID namespace, which {name} does not end"
            return "ignored", f"{words}; SIGKILL does"
        return "ignored", f"{name} has not ended it; SIGKILL does"

    def _steady_state(self) -> str:
        """Return the state; D only if it lasts: a process that reads a file has it for a moment."""
        for _ in range(4):
            state = self.state
            if state != "D":
                break
            time.sleep(0.02)
        return state

    def _compared(self, target: ProcessId) -> ProcStat:
        """Return its /proc/PID/stat if it is the intended process. It is held already, so if it
        runs but is not in /proc, it is hidden (hidepid)."""
        try:
            stat = READER.ask(stat_of, self.pid)
        except (FileNotFoundError, ProcessLookupError):
            gone = NotSentError("gone", _GONE) if self.ended else _unseen("/proc does not show it")
            raise gone from None
        if target.start_ticks is None:
            raise _unseen("its start time was not known when the GPU listed it")
        if stat.start_ticks != target.start_ticks:
            raise NotSentError(
                "identity_changed", "another process has this PID now; nothing was sent"
            )
        return stat

    def _stat(self) -> ProcStat | None:
        """Return its /proc/PID/stat; None once the PID is free or reused."""
        stat = read_stat(self.pid)
        return stat if stat is not None and stat.start_ticks == self.ticks else None


def stat_of(pid: int) -> ProcStat:
    """Read /proc/PID/stat; OSError, ValueError."""
    return parse_stat(read_bounded(f"/proc/{pid}/stat", 4096)[0])


def process_of(pid: int) -> ProcessId | None:
    stat = read_stat(pid)
    return None if stat is None else ProcessId(pid, stat.start_ticks)


def _open(target: ProcessId) -> int:
    if target.pid <= 0:
        raise NotSentError("refused", "0 and negative numbers are groups of processes: give a PID")
    if target.pid == os.getpid():
        raise NotSentError("refused", "this is the gputop that would send it: quit it with q")
    if target.start_ticks is None and not (in_first_namespace() or local_process(target.pid)):
        raise _elsewhere(target.pid)
    try:
        return os.pidfd_open(target.pid)
    except (ProcessLookupError, OverflowError):
        raise NotSentError("gone", _GONE) from None
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise _unable(error) from None
        is_thread = _status(target.pid, "Tgid") not in (0, target.pid)  # no process has it by now
        if error.errno in (errno.EINVAL, errno.ENOENT) and is_thread:
            raise NotSentError("gone", _GONE) from None
        raise _unseen(error) from None
    except AttributeError:  # Python was built on an older system
        raise _unable(OSError(errno.ENOSYS, "")) from None


def _unable(error: OSError) -> NotSentError:
    """Return the error without pidfds. There is no fallback: the PID may be reused meanwhile."""
    if error.errno == errno.ENOSYS:
        return NotSentError("refused", "gputop needs pidfd_open (Linux 5.3) to send signals")
    return NotSentError("refused", f"it cannot be signalled: {error.strerror}")


def _unseen(why: Exception | str) -> NotSentError:
    """Return the error for an unreadable process, which need not have ended."""
    reason = why if isinstance(why, str) else getattr(why, "strerror", None)
    if reason is None:
        reason = "out of memory" if isinstance(why, MemoryError) else "/proc cannot be read"
    return NotSentError("unknown", f"it could not be checked: {reason}; nothing was sent")


def _elsewhere(pid: int) -> NotSentError:
    """Return the error for a driver's PID that may mean another process than the one here."""
    words = f"it cannot be identified here: {why_not_local(pid)}; nothing was sent"
    return NotSentError(
        "other_namespace", f"{words}: if the PID is the host's, signal it on the host"
    )


def _status(pid: int, field: str) -> int:
    """Return a line of /proc/PID/status: Tgid, TracerPid, the last PID of NSpid, or a mask; 0 if
    it is not known."""
    status, _ = read_if_any(f"/proc/{pid}/status", _MOST_STATUS)
    words = proc_field(status, field.encode())
    return int(words[-1], 10 if field in ("NSpid", "Tgid", "TracerPid") else 16) if words else 0


def _kernel_function(pid: int) -> str:
    """Return `, in nvidia_ioctl`, if /proc/PID/wchan names the function."""
    name = printable(read_file(pid, "wchan")[:64].decode("ascii", "replace").strip())
    return f", in {name}" if name not in ("", "0") else ""


_KERNELS = "it is a kernel thread, which no signal ends; nothing was sent"
_GONE = "it had already ended; nothing was sent"
