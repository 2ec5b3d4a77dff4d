"""A machine that the screen watches: its source, and all that is remembered of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakMethod

from textual.message import Message

from gputop.errors import LoginError, SourceError
from gputop.model.conditions.marks import MarkNews, Marks
from gputop.model.cuda.logical_names import LogicalNames
from gputop.model.fleet.host_row import HostState
from gputop.model.fleet.link import HostLink
from gputop.model.machine.frame import Frame, Problem
from gputop.model.machine.text import counted
from gputop.model.metrics.history import History
from gputop.protocol.messages import (
    AnsweredRequest,
    Liveness,
    Preview,
    Refresh,
    Reply,
    Request,
    SetInterval,
    Signal,
)
from gputop.sources.agent_process import INTERVAL
from gputop.sources.feed import Feed
from gputop.tui.messages import Arrived, MarkReached, ReplyReceiver
from gputop.tui.snapshot import Snapshot

if TYPE_CHECKING:
    from gputop.sources.follow import Backoff

_MARKS = "marks"
"""The id of requests about marked processes."""
_MOST_NEWS = 3
_OUT_OF_SIGHT = 3.0
"""Seconds between two frames of a machine of which nothing is in sight: sums over all hosts are at
most so old."""
_REBOOT_SHOWN = 600.0
"""Seconds for which the reboot of a machine is shown."""


class PendingSignals:
    """Signals that this gputop sent and that have no outcome yet, with or without a dialog."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._unknown = 0

    def add(self, request: Signal) -> None:
        """Await the verdicts of a request; a check sends nothing and is not awaited."""
        if request.number:
            self._waiting[request.id] = len(request.targets)
            self._unknown = 0

    def handle(self, reply: Reply) -> int | None:
        """Return how many processes of a request may still end; None if it is not awaited."""
        if reply.request not in self._waiting:
            return None
        waiting = sum(verdict.outcome == "waiting" for verdict in reply.verdicts)
        if waiting:
            self._waiting[reply.request] = waiting
        else:
            del self._waiting[reply.request]
        return waiting

    def lose(self) -> bool:
        """Give up all requests, since the agent ended; return whether any was awaited."""
        lost = sum(self._waiting.values())
        self._waiting, self._unknown = {}, lost or self._unknown
        return bool(lost)

    def words(self) -> str:
        """Return what the heading says of signals; empty if there is nothing to say."""
        count = sum(self._waiting.values())
        if count:
            return f"{counted(count, 'signal')} under way"
        lost = self._unknown
        return f"agent ended: outcome of {counted(lost, 'signal')} unknown" if lost else ""


class WatchedMachine:
    """One machine: its source, newest frame, history and the signals that were sent there."""

    def __init__(
        self, feed: Feed, post: Callable[[Message], object], interval: float = INTERVAL
    ) -> None:
        """`post` takes messages to the app, from any thread; `interval`: that of the source."""
        self.feed = feed
        self._interval, self._is_in_sight = interval, True
        self.status_changed: Callable[[], None] = lambda: None
        """Called when the note about signals or the news of marks changes."""
        self.marks = Marks()
        self._news: list[str] = []
        """News of marks, the newest first, until they are dismissed."""
        self.ended = False
        """Whether the source has broken."""
        self.retry_in: float | None = None
        """Seconds until gputop connects again by itself; None if it does not."""
        self.seconds = 0
        """Seconds since something came from the source, or since it was started."""
        self._post = post
        self._frame: Frame | None = None
        self.history = History()
        """What led up to the newest frame."""
        self._arrived: deque[Frame] = deque(maxlen=1)
        """The newest frame of a machine that is not open: it waits here, and wakes nothing up."""
        self._reason, self._wants_login = "", False
        self._backoff: Backoff | None = None
        """The failures since the last frame; None without one."""
        self._is_stale = False
        """Whether the frame is from before the last `reconnect`."""
        self._rebooted: float | None = None
        self._signals = PendingSignals()
        self._receivers: dict[str, list[WeakMethod[ReplyReceiver]]] = {}
        """Who takes the replies to a request, by its id; a screen that was closed is not kept."""
        self.set_open(True)

    @property
    def host(self) -> str:
        """The name by which the user asked for the machine."""
        return self.feed.source.host

    @property
    def is_remote(self) -> bool:
        """Whether it is reached over ssh or Prometheus: gputop then connects again by itself."""
        return self.feed.source.link is not None

    @property
    def user(self) -> str | None:
        """The user that one is on another machine; None on this one, or if that is not known."""
        return self.feed.source.user if self.is_remote else None

    @property
    def link(self) -> HostLink:
        if (link := self.feed.source.link) is not None:
            return link
        if self.ended:
            return HostLink("login" if self._wants_login else "ended", words=self._reason)
        return HostLink("connected", age=float(self.seconds))

    @property
    def waiting(self) -> str:
        """What gputop waits for before the first frame."""
        link = self.link
        if link.state == "connecting":
            return f"connecting to {self.host}" + (f": {link.words}" if link.words else "")
        if link.state == "waiting":
            return f"waiting for a turn to connect to {self.host}"
        return "waiting for the driver"

    @property
    def _current(self) -> Frame | None:
        """The newest frame of this connection."""
        return None if self._is_stale else self._frame

    @property
    def note(self) -> str:
        """What the heading says of signals."""
        return self._signals.words()

    @property
    def news(self) -> str:
        """What the heading says of marks that were reached."""
        return "; ".join(self._news)

    @property
    def limit(self) -> str:
        """What limits the view of this machine; empty if nothing does."""
        link = self.link
        if link.kind == "prometheus":
            return f"from Prometheus ({link.words})"
        return "nvidia-smi only" if link.kind == "nvidia-smi" else ""

    @property
    def state(self) -> HostState:
        """The current state, for the machine's row among all hosts."""
        rebooted = None
        if self._frame is not None and self._rebooted is not None:
            rebooted = self._frame.time - self._rebooted
        if rebooted is not None and not 0 <= rebooted < _REBOOT_SHOWN:
            rebooted = None
        return HostState(
            self.host, self._current, self.link, self.retry_in, self._reason, rebooted,
            self._interval_now,
        )  # fmt: skip

    @property
    def phase(self) -> tuple[bool, bool]:
        """Whether there is a frame of this connection, and whether that has ended."""
        return self._current is not None, self.ended

    @property
    def problem(self) -> Problem:
        """Why the source ended, and what the user can do."""
        if not self.is_remote:
            advice = "press r to start it again, d for the demo"
        elif self._wants_login:
            advice = "press L to log in by hand"
        else:
            advice = "trying again soon; press r to try now"
        return Problem(code="agent_ended", text=self._reason, advice=advice)

    def listen(self) -> None:
        self.feed.listen(partial(self._take, self.feed))

    def set_open(self, is_open: bool) -> None:
        """Post each frame as it comes, and keep a full history; or else keep only the newest frame,
        for `take_arrived`, and a brief history."""
        self._is_open, self.history.brief = is_open, not is_open
        self.note_sight(True)
        self.feed.source.remember(is_open)

    def set_interval(self, seconds: float) -> None:
        """Have a frame every so many seconds, less often while nothing of it is in sight."""
        self._interval = seconds
        self.request(SetInterval(self._interval_now))

    def note_sight(self, is_in_sight: bool) -> None:
        """Note whether anything of it is in sight; before the first frame that does not matter."""
        before, self._is_in_sight = self._interval_now, is_in_sight or self._current is None
        if self._interval_now != before:
            self.set_interval(self._interval)

    @property
    def _interval_now(self) -> float:
        return self._interval if self._is_in_sight else max(self._interval, _OUT_OF_SIGHT)

    def take_arrived(self) -> bool:
        """Take in the frame that has come since the last call; return whether there was one."""
        if not self._arrived:
            return False
        self.handle_frame(self._arrived.pop())
        return True

    def login_command(self) -> tuple[list[str], dict[str, str]] | None:
        """Return the command and the environment for a login by hand; None if the source is not
        ssh. Raise SourceError if no folder for the login can be made."""
        from gputop.sources.ssh.client import ssh_environment  # a start without ssh is faster
        from gputop.sources.ssh.login import login_command
        from gputop.sources.ssh.source import SshSource

        source = self.feed.source
        if not isinstance(source, SshSource):
            return None
        return login_command(source.name), ssh_environment()

    def request(self, request: Request, *receivers: ReplyReceiver) -> None:
        """Send a request. Each reply goes to the `receivers`, which are methods; signals are
        remembered until their outcome is known."""
        if isinstance(request, Signal):
            self._signals.add(request)
            self.status_changed()
            receivers = (self._receive_verdicts, *receivers)
        if isinstance(request, AnsweredRequest):
            self._receivers[request.id] = [WeakMethod(receiver) for receiver in receivers]
        if (unsent := self.feed.source.request(request)) is not None:
            self._post(Arrived(self.feed, unsent))

    def handle_frame(self, frame: Frame) -> None:
        before = self._frame
        if before is not None and None is not before.host.boot_id != frame.host.boot_id:
            self._rebooted = frame.time
        self._frame = frame
        self.history.append(frame)
        self._backoff, self._is_stale, self.seconds = None, False, 0
        self._reason = ""
        self._tell(self.marks.receive_frame(frame))
        self.ask_about_marks()

    def ask_about_marks(self) -> None:
        """Ask the agent about marked processes that the frame does not say enough about."""
        if self._frame is not None and (starts := self.marks.questions(self._frame)):
            self.request(Liveness(starts, _MARKS), self._receive_liveness)

    def _tell(self, news: list[MarkNews]) -> None:
        for short, sentence in news:
            self._news = [short, *self._news][:_MOST_NEWS]
            self._post(MarkReached(sentence))
        if news:
            self.status_changed()

    def dismiss_news(self) -> bool:
        """Drop the news of marks; return whether there were any."""
        was_any, self._news = bool(self._news), []
        self.status_changed()
        return was_any

    @property
    def snapshot(self) -> Snapshot | None:
        """What is shown now; None before the first frame of a connection."""
        frame = self._current
        return None if frame is None else Snapshot(frame, self.history, LogicalNames(frame))

    def handle(self, reply: Reply) -> None:
        """Pass a reply on to what asked for it."""
        self.seconds = 0
        for reference in self._receivers.get(reply.request, ()):
            if (receive := reference()) is not None:
                receive(reply)

    def _receive_liveness(self, reply: Reply) -> None:
        if self._frame is not None:
            self._tell(self.marks.receive_liveness(reply.liveness, self._frame))

    def _receive_verdicts(self, reply: Reply) -> None:
        """Count the signals under way; after the last verdict, ask for a frame at once."""
        waiting = self._signals.handle(reply)
        if waiting is not None:
            self.status_changed()
        if waiting == 0:
            self.request(Refresh())

    def lose_signals(self) -> bool:
        """Give up on the outcome of signals; return whether any was awaited."""
        lost = self._signals.lose()
        if lost:
            self.status_changed()
        return lost

    def end(self, error: SourceError, wants_login: bool = False) -> None:
        """Take in that the source has broken. A remote machine is tried again after a while,
        unless that needs a login by hand."""
        self.ended, self._reason = True, str(error)
        self._wants_login = wants_login or isinstance(error, LoginError)
        if self.is_remote and not self._wants_login:
            from gputop.sources.follow import Backoff  # a start without it is faster

            self._backoff = self._backoff or Backoff()
            self.retry_in = self._backoff.pause(error)

    def pass_second(self) -> bool:
        """Count a second; return whether it is time to connect again."""
        is_due = not self.ended and self.link.state == "connected"
        self.seconds = self.seconds + 1 if is_due else 0
        if self.retry_in is None:
            return False
        self.retry_in -= 1
        return self.retry_in <= 0

    def reconnect(self) -> None:
        """Connect anew to the same source; late messages of the old connection are dropped."""
        self.feed = Feed(self.feed.source)
        self.feed.source.reconnect()
        self.history = History()
        self.history.brief = not self._is_open
        self.retry_in = None
        self._arrived.clear()
        self._receivers.clear()
        self.lose_signals()
        self.ended, self._is_stale, self.seconds = False, True, 0
        self.listen()

    def _take(self, feed: Feed, content: Frame | Reply | SourceError) -> None:
        """Take what comes; called in the thread that reads."""
        if isinstance(content, Preview):
            return  # the splash shows that
        if self._is_open or not isinstance(content, Frame):
            self._post(Arrived(feed, content))
        elif feed is self.feed:
            self._arrived.append(content)
