"""The recent past of each GPU: gaps stay gaps."""

from __future__ import annotations

from gputop.model.history import LENGTH, History
from tests.builders import frame, gpu


def test_oldest_first() -> None:
    history = History()
    for value in (0.1, 0.2, 0.0):
        history.append(frame([gpu(0, utilization=value), gpu(1, utilization=1.0)]))
    assert history.utilization(gpu(0)) == [0.1, 0.2, 0.0]
    assert history.utilization(gpu(1)) == [1.0] * 3


def test_no_value_and_an_old_value_are_gaps() -> None:
    history = History()
    history.append(frame([gpu(utilization=0.5)]))
    history.append(frame([gpu(utilization=None)]))
    history.append(frame([gpu(utilization=0.5, stale_for=3.0)]))
    history.append(frame([gpu(utilization=None, error="GPU is lost")]))
    history.append(frame([gpu(utilization=0.6)]))
    assert history.utilization(gpu()) == [0.5, None, None, None, 0.6]


def test_only_the_last_are_kept() -> None:
    history = History()
    for n in range(LENGTH + 5):
        history.append(frame([gpu(utilization=n / 1000)]))
    kept = history.utilization(gpu())
    assert len(kept) == LENGTH
    assert kept[0] == 0.005
    assert kept[-1] == (LENGTH + 4) / 1000


def test_gpus_are_told_apart_by_uuid_not_by_place() -> None:
    history = History()
    history.append(frame([gpu(0, uuid="GPU-a", utilization=0.1), gpu(1, uuid="GPU-b")]))
    history.append(frame([gpu(0, uuid="GPU-b", utilization=0.2)]))
    assert history.utilization(gpu(0, uuid="GPU-b")) == [0.0, 0.2]
    assert history.utilization(gpu(0, uuid="GPU-a")) == []


def test_a_gpu_that_never_answered_has_its_place_for_a_name() -> None:
    history = History()
    history.append(frame([gpu(0, uuid=None, utilization=None), gpu(1, uuid=None, utilization=0.3)]))
    assert history.utilization(gpu(1, uuid=None)) == [0.3]
    assert history.utilization(gpu(2)) == []
