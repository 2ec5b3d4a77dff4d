"""A machine that the screen watches: where its frames come from, and all that is kept of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from textual.message import Message

from gputop.errors import LoginError, SourceError
from gputop.model.conditions.marks import MarkNews, Marks
from gputop.model.fleet.host_row import HostState
from gputop.model.fleet.link import Link, LinkState
from gputop.model.machine.frame import Frame, Problem
from gputop.model.metrics.history import History
from gputop.protocol.messages import Liveness, Preview, Refresh, Reply, Request, Signal
from gputop.sources.feed import Feed
from gputop.sources.past import Moment
from gputop.tui.messages import Arrived, MarkReached

_MARKS = "marks"
"""The id of what is asked about marked processes."""
_MOST_NEWS = 3
_REBOOT_SHOWN = 600.0
"""Seconds for which it is said that a machine was started anew."""


class Picture(NamedTuple):
    """What the screen shows: a frame, and the past that leads up to it."""

    frame: Frame
    history: History
    moment: Moment = "now"


class PendingSignals:
    """The signals that this gputop sent and that are not over, whether dialogs are open or not."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._unknown = 0

    def add(self, order: Signal) -> None:
        """Await an order; a check sends nothing and is not awaited."""
        if order.number:
            self._waiting[order.id] = len(order.targets)
            self._unknown = 0

    def handle(self, reply: Reply) -> int | None:
        """Return how many of an order may still end; None for an order that is not awaited."""
        if reply.request not in self._waiting:
            return None
        waiting = sum(verdict.outcome == "waiting" for verdict in reply.verdicts)
        if waiting:
            self._waiting[reply.request] = waiting
        else:
            del self._waiting[reply.request]
        return waiting

    def lose(self) -> bool:
        """Give all up, since the agent ended; whether anything was awaited."""
        lost = sum(self._waiting.values())
        self._waiting, self._unknown = {}, lost or self._unknown
        return bool(lost)

    def words(self) -> str:
        """Return what the heading says of them; empty where nothing is awaited."""
        count = sum(self._waiting.values())
        if count:
            return f"{count} signal{'s' * (count != 1)} under way"
        lost = self._unknown
        return f"agent ended: end of {lost} signal{'s' * (lost != 1)} unknown" if lost else ""


class WatchedMachine:
    """One machine: its source, newest frame, history and the signals that were sent there."""

    def __init__(self, feed: Feed, post: Callable[[Message], object]) -> None:
        """`post` takes messages to the app, from any thread."""
        self.feed = feed
        self.on_said: Callable[[], None] = lambda: None
        """Called when there is something else to say of signals or marks."""
        self.marks = Marks()
        self._news: list[str] = []
        """The newest first, until they are dismissed."""
        self.ended = False
        """Whether the source has broken."""
        self.retry_in: float | None = None
        """Seconds until it is tried again by itself."""
        self.seconds = 0
        """Since something has come from the source, or since it was started."""
        self._post = post
        self._frame: Frame | None = None
        self.history = History()
        """What led up to the newest frame."""
        self._frozen: Picture | None = None
        """What a pause holds, or a step back, while frames go on into the history."""
        self._arrived: deque[Frame] = deque(maxlen=1)
        """The newest frame, where the machine is not open: nobody is woken for it."""
        self._reason, self._wants_login = "", False
        self._attempts = 0
        self._rebooted: float | None = None
        self._signals = PendingSignals()
        self._set_open(True)

    @property
    def host(self) -> str:
        """The name by which it was asked for."""
        return self.feed.source.host

    @property
    def is_remote(self) -> bool:
        """Whether it is reached by ssh: then it is tried again by itself."""
        return self.feed.source.link is not None

    @property
    def link(self) -> Link:
        """How it is reached."""
        if (link := self.feed.source.link) is not None:
            return link
        if self.ended:
            return Link("login" if self._wants_login else "ended", words=self._reason)
        return Link("connected", age=float(self.seconds))

    @property
    def waiting(self) -> str:
        """What is waited for before there is a frame."""
        if self.link.state == "connecting":
            return f"connecting to {self.host}"
        if self.link.state == "waiting":
            return f"waiting for a turn to connect to {self.host}"
        return "waiting for the driver"

    @property
    def note(self) -> str:
        """What there is to say of signals."""
        return self._signals.words()

    @property
    def news(self) -> str:
        """What has come of marks."""
        return "; ".join(self._news)

    @property
    def limit(self) -> str:
        """What this machine has not; empty where it has all."""
        link = self.link
        if link.how == "prometheus":
            return f"from Prometheus ({link.words})"
        return "nvidia-smi only" if link.how == "poor" else ""

    @property
    def state(self) -> HostState:
        """How it is now, for a row of many."""
        rebooted = None
        if self._frame is not None and self._rebooted is not None:
            rebooted = self._frame.time - self._rebooted
        if rebooted is not None and not 0 <= rebooted < _REBOOT_SHOWN:
            rebooted = None
        return HostState(self.host, self._frame, self.link, self.retry_in, self._reason, rebooted)

    @property
    def phase(self) -> tuple[bool, LinkState]:
        """Whether anything has come of it, and how it is reached."""
        return self._frame is not None, self.link.state

    @property
    def problem(self) -> Problem:
        """Why nothing comes any more, and what to do."""
        if not self.is_remote:
            advice = "press r to start it again, d for the demo"
        elif self._wants_login:
            advice = "press L to log in by hand"
        else:
            advice = "it is tried again; press r to try now"
        return Problem(kind="agent_ended", message=self._reason, advice=advice)

    def listen(self) -> None:
        """Begin to read."""
        self.feed.listen(partial(self._take, self.feed))

    def open(self) -> None:
        """Have each frame told, and keep a whole history."""
        self._set_open(True)

    def leave(self) -> None:
        """Keep the newest frame for who asks, and a history in brief."""
        self._set_open(False)
        self.thaw()

    def take_arrived(self) -> bool:
        """Take the frame that has come meanwhile; whether there is one."""
        if not self._arrived:
            return False
        self.handle_frame(self._arrived.pop())
        return True

    def login_command(self) -> tuple[list[str], dict[str, str]] | None:
        """Return command and environment with which a person logs in; None where there is nobody
        to log in to. SourceError."""
        from gputop.sources.ssh.client import ssh_environment  # as above
        from gputop.sources.ssh.login import login_command
        from gputop.sources.ssh.source import SshSource

        source = self.feed.source
        if not isinstance(source, SshSource):
            return None
        return login_command(source.name), ssh_environment()

    def request(self, request: Request) -> None:
        """Send a request; signals are remembered until all is known of them."""
        if isinstance(request, Signal):
            self._signals.add(request)
            self.on_said()
        self.feed.source.request(request)

    def handle_frame(self, frame: Frame) -> None:
        """Take another frame."""
        before = self._frame
        if before is not None and None is not before.host.boot_id != frame.host.boot_id:
            self._rebooted = frame.time
        self._frame = frame
        self.history.append(frame)
        self._attempts = self.seconds = 0
        self._reason = ""
        self._tell(self.marks.handle_frame(frame))
        self.ask_about_marks()

    def ask_about_marks(self) -> None:
        """Ask the agent about marked processes of which the frame does not say enough."""
        if self._frame is not None and (starts := self.marks.questions(self._frame)):
            self.request(Liveness(starts, _MARKS))

    def _tell(self, news: list[MarkNews]) -> None:
        for short, sentence in news:
            self._news = [short, *self._news][:_MOST_NEWS]
            self._post(MarkReached(sentence))
        if news:
            self.on_said()

    def dismiss_news(self) -> bool:
        """Say no more of what has come of marks; whether there was something to say."""
        was_any, self._news = bool(self._news), []
        self.on_said()
        return was_any

    @property
    def picture(self) -> Picture | None:
        """What is to be shown: that of now, or the one that is frozen; None before any frame."""
        if self._frozen is not None or self._frame is None:
            return self._frozen
        return Picture(self._frame, self.history)

    @property
    def age(self) -> float | None:
        """Seconds between the frozen picture and the newest frame; None where none is frozen."""
        if self._frozen is None or self._frame is None:
            return None
        return max(0.0, self._frame.time - self._frozen.frame.time)

    @property
    def now(self) -> float | None:
        """The time of the newest frame."""
        return None if self._frame is None else self._frame.time

    def hold(self, picture: Picture) -> None:
        """Show this one until it thaws."""
        self._frozen = picture

    def freeze(self) -> None:
        """Hold the picture of now, from which the history goes on apart."""
        if self._frame is not None:
            self._frozen = Picture(self._frame, self.history.copy())

    def thaw(self) -> None:
        """Show what comes again."""
        self._frozen = None

    def handle(self, reply: Reply) -> None:
        """Take what became of a signal; the frame after the last of it need not be waited for."""
        if reply.request == _MARKS and self._frame is not None:
            self._tell(self.marks.handle_liveness(reply.liveness, self._frame))
        waiting = self._signals.handle(reply)
        if waiting is not None:
            self.on_said()
        if waiting == 0:
            self.request(Refresh())

    def lose_signals(self) -> bool:
        """Nobody will tell what became of them. Return whether any were sent."""
        lost = self._signals.lose()
        if lost:
            self.on_said()
        return lost

    def end(self, error: SourceError, wants_login: bool = False) -> None:
        """Take in that the source has broken; another machine is tried again after a while, unless
        that needs a person."""
        self.ended, self._reason = True, str(error)
        self._wants_login = wants_login or isinstance(error, LoginError)
        if self.is_remote and not self._wants_login:
            from gputop.sources.follow import backoff  # one machine starts sooner without

            self._attempts += 1
            self.retry_in = backoff(self._attempts)

    def pass_second(self) -> bool:
        """Take in that another second is over; whether it is time to try again."""
        is_due = not self.ended and self.link.state == "connected"
        self.seconds = self.seconds + 1 if is_due else 0
        if self.retry_in is None:
            return False
        self.retry_in -= 1
        return self.retry_in <= 0

    def reconnect(self) -> None:
        """Begin anew with the same source; what its last connection still says comes too late."""
        self.feed = Feed(self.feed.source)
        self.feed.source.reconnect()
        self.history = History()
        self.history.brief = not self._is_open
        self._frozen = self.retry_in = None
        self._arrived.clear()
        self.ended, self.seconds = False, 0
        self.listen()

    def _set_open(self, is_open: bool) -> None:
        """The frames of a machine that is open are remembered."""
        self._is_open, self.history.brief = is_open, not is_open
        self.feed.source.remember(is_open)

    def _take(self, feed: Feed, told: Frame | Reply | SourceError) -> None:
        """Take what comes, in the thread that reads."""
        if isinstance(told, Preview):
            return  # the splash shows that
        if self._is_open or not isinstance(told, Frame):
            self._post(Arrived(feed, told))
        elif feed is self.feed:
            self._arrived.append(told)
