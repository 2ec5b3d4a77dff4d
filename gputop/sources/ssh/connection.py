"""One connection to another machine, from the wait for its turn to its end."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from gputop.errors import LoginError, PermanentError, SourceError
from gputop.model.fleet.link import HostLink, LinkKind
from gputop.model.machine.frame import Frame
from gputop.model.machine.text import printable
from gputop.protocol.codec import encode
from gputop.protocol.messages import Ping, Reply, Request
from gputop.protocol.versions import SPOKEN
from gputop.sources.agent_source import AgentConnection
from gputop.sources.ssh.carry import Parcel, parcel
from gputop.sources.ssh.client import proxy_of, ssh_environment, stream_command
from gputop.sources.ssh.login import login_options
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.pacing import HUNG_LOGINS, LEASE, PINGER, limiter_of
from gputop.sources.ssh.process import Allowance, BusyError, SshProcess
from gputop.sources.ssh.smi import SEPARATOR, WORDS, SmiReader, smi_text
from gputop.sources.ssh.start import Remote, read_remote, remote_command

_CONNECT = 60.0
"""Seconds from the first byte to ssh until an agent is started: the agent may be carried there over
a slow network."""
_PAUSES = 0.5, 1.0, 2.0, 4.0
"""Seconds, about, after which a login that an sshd has cut off is tried again: it takes so many at
once, and others are on their way."""
_ROWS = (1 << 19, 50_000)
"""Rows of frames at once, and a second: ten frames a second of 8 GPUs with 4,000 processes. They
take work here, however few bytes they are."""
_GPU = 32
"""How many rows a GPU counts for."""
_MOST_QUEUED = 1000
_LONGEST_COUNT = 16
"""Bytes of a line with a number of bytes."""
_PING = "ping "


class AgentOptions(NamedTuple):
    """The options of an agent elsewhere."""

    interval: float | None
    """Seconds; None: one frame."""
    less: tuple[str, ...] = ()
    """As for `open_source`."""

    def words(self, files: bool) -> str:
        """Return the words for `gputop agent`, in which a shell has nothing to expand."""
        words = ["--protocol", str(SPOKEN), *self.less]
        if self.interval is None:
            return " ".join([*words, "--once"])
        words += ["--interval", str(self.interval), "--lease", str(LEASE)]
        return " ".join(words if files else [*words, "--no-files"])


class Connection(AgentConnection):
    """An ssh, and the agent at its other end."""

    def __init__(
        self,
        host: HostName,
        options: AgentOptions,
        timeouts: tuple[float, float],
        whole: float = math.inf,
    ) -> None:
        """`timeouts`: seconds without a line during the login, and after it; `whole`: seconds from
        connecting to the first frame, and from there to each next one, whatever else comes.
        SourceError after them."""
        super().__init__(host.requested_name)
        self._host, self._options, self._whole = host, options, whole
        self._timeout, self._later_timeout = timeouts
        """Seconds for the next line, and for those after the login."""
        self._due = math.inf
        """When the next frame must be there, in monotonic seconds."""
        self._link = HostLink()
        self._heard: float | None = None
        """When the last frame came, before the first one any line, in monotonic seconds."""
        self._has_frame = False
        self._rows = Allowance(*_ROWS)
        self._lock = threading.Lock()
        self._process: SshProcess | None = None
        self.remote: Remote | None = None
        """What there is on the machine, once that is known."""
        self._queued: list[bytes] | None = []
        """Requests from before there was an agent; None from then on."""
        self._over = threading.Event()
        self._limiter = limiter_of("")
        self._smi: SmiReader | None = None
        """Reads the lines if there is only nvidia-smi."""
        self._pings = 0
        self._pinged: tuple[str, float] | None = None
        """The ping that is not answered yet, and when it was sent."""

    @property
    def link(self) -> HostLink:
        """The state of the connection just now."""
        age = None if self._heard is None else time.monotonic() - self._heard
        return HostLink(*self._link[:-1], age)

    def messages(self) -> Iterator[Frame | Reply]:
        """See `AgentConnection`. LoginError if ssh wants to ask a person."""
        try:
            if (process := self._process) is None:
                process = self._start()
            else:
                self._begin(self._whole)
            while (line := process.line(self._left())).endswith(b"\n"):
                if self._heard is None and self._options.interval is not None:
                    self.ping()
                if self._smi is not None:
                    self._rows.take(line.count(SEPARATOR.encode()))
                message = self.take(line) if self._smi is None else self._smi.read(line)
                self._note(message)
                if message is not None and not self._is_pong(message):
                    yield message
                    if isinstance(message, Frame):
                        self._rows.take(len(message.processes) + _GPU * len(message.gpus))
                        self._begin(self._whole)
            raise process.failure()
        except TimeoutError:
            raise self._ended(self._silence()) from None
        except SourceError as error:
            raise self._ended(error) from None

    def request(self, request: Request) -> bool:
        """Send a request. If there is no agent yet, it waits for one, and is lost if none comes."""
        data = encode(request) + b"\n"
        with self._lock:
            if self._queued is not None:
                if has_room := len(self._queued) < _MOST_QUEUED:
                    self._queued.append(data)
                return has_room
        return self._write(data)

    def ping(self) -> None:
        """Ping the agent: its reply shows that it is there, and the ping that we are."""
        self._pings += 1
        request = Ping(f"{_PING}{self._pings}")
        if self._pinged is None and self._heard is not None:  # before, it is still being started
            self._pinged = (request.id, time.monotonic())
        self._write(encode(request) + b"\n")

    def stop(self) -> None:
        """End ssh at once; what runs there ends with its input."""
        with self._lock:
            self._over.set()
            self._queued = None
            process = self._process
        PINGER.forget(self.ping)
        self._limiter.wake()
        if process is not None:
            process.stop()

    def free(self) -> None:
        if self._link.state not in ("login", "ended"):  # otherwise `messages` has ended it all
            self._ended(SourceError("the connection is closed"))

    def _begin(self, seconds: float) -> None:
        """Begin to wait for a frame, or for a connection: a reader may have paused meanwhile."""
        self._due = time.monotonic() + seconds

    def _left(self) -> float:
        """Return the seconds for the next line."""
        return min(self._timeout, self._due - time.monotonic())

    def _start(self) -> SshProcess:
        """Connect, and start the best of what the machine has."""
        process, remote = self._log_in()
        self.remote = remote
        HUNG_LOGINS.pop(self._host, None)
        kind, why, start, agent = choice(remote, self._options)
        self._timeout = self._later_timeout
        if kind == "nvidia-smi":
            self._smi = SmiReader(self._options.interval, self._host.requested_name)
            self._timeout += self._options.interval or 0.0  # between two rounds it answers nothing
        process.send(start, self._left)
        if agent is not None:
            self._carry(process, agent)
        if self._whole > _CONNECT:
            self._begin(self._whole)
        self._link = HostLink("connected", kind, why)
        with self._lock:
            for data in self._queued or ():
                self._write(data)
            self._queued = None
        if self._options.interval is not None:
            PINGER.add(self.ping)
        return process

    def _carry(self, process: SshProcess, agent: Parcel) -> None:
        """Send the agent, if it is not there. The loader tells again and again what it lacks, so
        that silence counts from the last piece that arrived, however slow the network is."""
        process.send(agent.loader + agent.offer, self._left)
        size = len(agent.archive)
        before = size + 1
        while before > 0:
            line = process.line(self._left(), _LONGEST_COUNT)
            if not line.endswith(b"\n"):
                raise process.failure()
            left = _count(line, before)
            if left and before > size:
                process.send(agent.archive, self._left)
            before = left
            words = f"the agent is sent there: {1 - left / size:.0%}"
            self._link = HostLink("connecting", words=words)

    def _log_in(self) -> tuple[SshProcess, Remote]:
        """Connect, again if an sshd has closed the key exchange, and find out what there is."""
        proxy = proxy_of(self._host)
        self._limiter = limiter_of(proxy)
        self._timeout *= 2 if proxy else 1  # there are two logins
        for pause in _PAUSES:
            try:
                return self._log_in_once()
            except BusyError as error:
                self._link = HostLink("waiting", words=f"{error}: it is tried again")
            self._drop()
            self._over.wait(pause * random.uniform(0.5, 1.5))
        return self._log_in_once()

    def _log_in_once(self) -> tuple[SshProcess, Remote]:
        with self._limiter.place(self._over.is_set):
            self._link = HostLink("connecting")
            self._begin(min(_CONNECT, self._whole))
            process = self._spawn()
            remote = read_remote(lambda most: process.line(self._left(), most))
        if remote is None:
            raise process.failure()
        return process, remote

    def _spawn(self) -> SshProcess:
        with self._lock:
            if self._over.is_set():
                raise SourceError("the connection is closed")
            command = stream_command(self._host, remote_command(), login_options(self._host))
            self._process = SshProcess(command, ssh_environment())
            return self._process

    def _write(self, data: bytes) -> bool:
        if self._smi is not None:
            self._smi.refuse(data)
        process = self._process  # another thread may drop it
        try:
            return process is None or process.write(data)
        except BrokenPipeError:
            return True

    def _note(self, message: Frame | Reply | None) -> None:
        """Note that a line has come, and what it was."""
        if isinstance(message, Frame) or not self._has_frame:
            self._heard = time.monotonic()
            self._has_frame = isinstance(message, Frame)

    def _is_pong(self, message: Frame | Reply) -> bool:
        """Return whether a message answers a ping; measure the round trip of the last one."""
        if not (isinstance(message, Reply) and message.request.startswith(_PING)):
            return False
        if self._pinged is not None and self._pinged[0] == message.request:
            self._link = self._link._replace(round_trip=time.monotonic() - self._pinged[1])
            self._pinged = None
        return True

    def _silence(self) -> SourceError:
        if time.monotonic() >= self._due:
            return SourceError("only part of an answer came in time: try again")
        nothing = f"no answer for {round(self._timeout, 1):g} s"
        if self.remote is not None:
            what = "nvidia-smi hangs there" if self._smi else "the agent is stopped"
            return SourceError(f"{nothing}: {what}, or the network is down")
        HUNG_LOGINS[self._host] += 1
        if (count := HUNG_LOGINS[self._host]) > 1:
            return PermanentError(f"{count} logins hang there: {nothing}")
        return PermanentError(f"{nothing}: the login there hangs, or the network is down")

    def _drop(self) -> None:
        """End ssh, and close its output."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()
            process.close()

    def _ended(self, error: SourceError) -> SourceError:
        """End and close everything; return the error, made harmless."""
        self.stop()
        self._drop()
        is_login = isinstance(error, LoginError)
        words = printable(str(error), 300)
        self._link = HostLink("login" if is_login else "ended", self._link.kind, words)
        return type(error)(words)


def _count(line: bytes, most: int) -> int:
    """Return the number in a line of the loader's, less than `most`. SourceError."""
    if line.strip().isdigit() and (count := int(line)) < most:
        return count
    raise SourceError("the host did not take the agent: try ssh by hand")


def choice(remote: Remote, options: AgentOptions) -> tuple[LinkKind, str, bytes, Parcel | None]:
    """Return what to run there, why nothing better, the input that starts it, and the agent if it
    is carried. SourceError."""
    why = ""
    if remote.gputop is not None:
        if remote.spoken is not None and remote.spoken.shared(SPOKEN) is not None:
            return "installed", "", f"installed 0 {options.words(files=True)}\n".encode(), None
        spoken = "an old one" if remote.spoken is None else f"protocol {remote.spoken}"
        why = f"gputop there speaks {spoken}, this one {SPOKEN}"
    if remote.python is not None:
        agent = parcel(remote.python.packer)
        head = f"carried {len(agent.loader)} {options.words(files=False)}\n"
        return "carried", why, head.encode(), agent
    if remote.nvidia_smi is not None:
        text = smi_text(options.interval)
        return "nvidia-smi", WORDS, f"shell {len(text)}\n".encode() + text, None
    raise SourceError(
        "gputop is not installed there, and there is no Python 3.9 or newer to run it with, nor "
        "nvidia-smi"
    )
