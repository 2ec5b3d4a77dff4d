"""Asks several machines at the same time: one that does not answer delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from gputop.errors import GputopError, SourceError
from gputop.model.machine.text import printable
from gputop.sources.ssh.names import HostName
from gputop.sources.ssh.pacing import CONNECT_LIMITER

T = TypeVar("T")
H = TypeVar("H", bound=HostName | None)


def ask_hosts(
    hosts: Iterable[H], ask: Callable[[H], T], timeout: float | None = None
) -> Iterator[tuple[H, T | GputopError]]:
    """Yield what `ask` returns for each host, or the error that it raises, as they come, until
    `timeout` seconds are over.

    Each host is asked in a thread of its own, which goes on alone after the timeout.
    """
    answers: SimpleQueue[tuple[H, T | GputopError]] = SimpleQueue()

    def run(host: H) -> None:
        answers.put((host, _answer(host, ask)))

    threads = [threading.Thread(target=run, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    end = None if timeout is None else time.monotonic() + timeout
    for _ in threads:
        try:
            answer = answers.get(timeout=end and max(0.0, end - time.monotonic()))
        except Empty:
            return
        yield answer


def whole_answers(
    hosts: Sequence[H], ask: Callable[[H], T], seconds: float, late: str = ""
) -> Iterator[tuple[H, T | GputopError]]:
    """Yield as `ask_hosts` does. A host has `seconds` for all of its answer, beyond the wait for
    its turn to connect. Then its answer is an error that ends with `late`, whatever has come: it
    never costs the others theirs."""
    missing = dict.fromkeys(hosts)
    for host, answer in ask_hosts(hosts, ask, seconds + CONNECT_LIMITER.longest(len(hosts))):
        del missing[host]
        yield host, answer
    for host in missing:
        yield host, SourceError(f"no complete answer within {seconds:g} s{late}")


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
