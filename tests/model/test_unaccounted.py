"""Memory that no listed process holds."""

from __future__ import annotations

import pytest

from gputop.model.health.unaccounted import (
    NOTABLE,
    is_notable,
    remark,
    suspects_or_none,
    unaccounted,
    words,
)
from gputop.model.machine.gpu import DeviceHolder, HolderReason
from tests.builders import GIB, gpu


@pytest.mark.parametrize(
    ("used", "held", "known", "expected"),
    [
        (10, [], True, 10),
        (10, [3, 4], True, 3),
        (10, [3, 4], None, None),
        (10, [6, 7], True, 0),
        (10, [3, None], True, None),
        (10, [], False, None),
        (None, [3], True, None),
    ],
)
def test_unaccounted(
    used: int | None, held: list[int | None], known: bool, expected: int | None
) -> None:
    assert unaccounted(used, held, known) == expected


def test_what_leaves_a_gpu_free_is_not_notable() -> None:
    assert not is_notable(None)
    assert not is_notable(NOTABLE - 1)
    assert is_notable(NOTABLE)
    assert NOTABLE == GIB


def opener(pid: int, reason: HolderReason) -> DeviceHolder:
    return DeviceHolder(pid=pid, start_ticks=7, start_time=1.0, reason=reason)


def test_monitors_are_no_suspects() -> None:
    found = (opener(1, "orphan"), opener(2, "monitor"))
    assert suspects_or_none(gpu(holders=found, listed="none")) == found[:1]


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("orphan", "kill 7"),
        ("zombie_child", "zombie"),
        ("other_namespace", "container"),
        ("open", "ask its owner"),
        ("monitor", "no memory"),
    ],
)
def test_words_say_what_to_do(reason: HolderReason, word: str) -> None:
    assert word in words(opener(7, reason))


def test_a_remark_where_nobody_is_seen() -> None:
    assert "Look from the host" in remark(gpu(), nested=True)
    # What a user may see without root, gputop has seen.
    advice = "held by no visible process. Try: sudo fuser -v /dev/nvidia3"
    assert remark(gpu(minor=3), nested=False) == advice
    # On a busy machine it has not seen all of it yet.
    advice = "not every process was searched in time. Try: sudo fuser -v /dev/nvidia3"
    assert remark(gpu(minor=3, holders_known=False), nested=False) == advice
