"""Asks several machines at the same time: one that does not answer delays no other."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, Queue
from typing import TypeVar

from gputop.errors import GputopError, SourceError
from gputop.model.machine.text import printable
from gputop.sources.feed import NO_THREAD
from gputop.sources.ssh.names import HostName

T = TypeVar("T")
H = TypeVar("H", bound=HostName | None)


def ask_hosts(
    hosts: Iterable[H],
    ask: Callable[[H], T],
    timeout: float | None = None,
    silence: Callable[[], float] = lambda: math.inf,
) -> Iterator[tuple[H, T | GputopError]]:
    """Yield what `ask` returns for each host, or the error that it raises, as they come, until
    `timeout` seconds are over, or the next does not come in the seconds that `silence` returns.

    Each host is asked in a thread of its own, which goes on alone after the timeout.
    """
    # Before Python 3.13 a SimpleQueue waits for ever if a signal's handler outlasts the timeout.
    answers: Queue[tuple[H, T | GputopError]] = Queue()

    def run(host: H) -> None:
        answers.put((host, _answer(host, ask)))

    asked = list(hosts)
    for host in asked:
        try:
            threading.Thread(target=run, args=(host,), daemon=True).start()
        except RuntimeError:
            answers.put((host, SourceError(NO_THREAD)))
    end = None if timeout is None else time.monotonic() + timeout
    for _ in asked:
        left = silence() if end is None else end - time.monotonic()
        try:
            answer = answers.get(timeout=None if left == math.inf else max(0.0, left))
        except Empty:
            return
        yield answer


def whole_answers(
    hosts: Sequence[H], ask: Callable[[H], T], seconds: float, late: str = ""
) -> Iterator[tuple[H, T | GputopError]]:
    """Yield as `ask_hosts` does. Once none has answered for `seconds`, the time that a host has
    when it is its turn to connect, the answer of the others is an error that ends with `late`,
    whatever has come of it."""
    missing = dict.fromkeys(hosts)
    for host, answer in ask_hosts(hosts, ask, silence=lambda: seconds):
        del missing[host]
        yield host, answer
    for host in missing:
        yield host, SourceError(f"no complete answer within {seconds:g} s{late}")


def first_fitting(
    hosts: Sequence[HostName],
    ask: Callable[[HostName], T],
    fits: Callable[[T], bool],
    seconds: float,
    grace: float = 1.0,
) -> tuple[HostName | None, dict[HostName, T | GputopError]]:
    """Ask all hosts, and return the first whose answer fits, None if none does, and all answers.

    Hosts named before it are preferred if they answer at most `grace` seconds later. Otherwise
    their answer is an error; so is that of each host once none has answered for `seconds`.
    """
    answers = dict[HostName, T | GputopError]()
    preferred, chosen, end = hosts, None, math.inf

    def silence() -> float:
        return min(seconds, end - time.monotonic())

    for host, answer in ask_hosts(hosts, ask, silence=silence):
        answers[host] = answer
        if host in preferred and not isinstance(answer, GputopError) and fits(answer):
            preferred, chosen = preferred[: preferred.index(host)], host
            end = min(end, time.monotonic() + grace)
        if chosen and answers.keys() >= set(preferred):
            break
    words = f"no complete answer within {seconds:g} s"
    if chosen:
        words = f"no answer yet when {chosen.requested_name} had enough"
    return chosen, {host: SourceError(words) for host in preferred} | answers


def _answer(host: H, ask: Callable[[H], T]) -> T | GputopError:
    try:
        return ask(host)
    except GputopError as error:
        return error
    except Exception as error:  # noqa: BLE001 - it is reported, and the others are asked all the same
        return SourceError(printable(f"{type(error).__name__}: {error}", 200))


def in_order(
    hosts: Iterable[HostName], answers: Iterable[tuple[HostName, T]]
) -> Iterator[tuple[HostName, T]]:
    """Yield answers in the order of their hosts, each as soon as those before it are there."""
    waiting, missing = dict[HostName, T](), iter(hosts)
    host = next(missing, None)
    for answered, answer in answers:
        waiting[answered] = answer
        while host in waiting:
            yield host, waiting.pop(host)
            host = next(missing, None)
