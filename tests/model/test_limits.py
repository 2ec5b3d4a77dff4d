"""What a driver does not tell, and why."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.gpu import Gpu, Listing
from gputop.model.machine.limits import is_unified, limits, no_process_text
from gputop.model.machine.sections import Identity
from tests import builders

GIB = 2**30


def told(gpu: Gpu, **host: Any) -> tuple[str, ...]:
    return tuple(limits(Frame(host=Host(name="node", **host), time=0.0, gpus=(gpu,)), gpu))


def gpu(capability: str = "9.0", virtualization: str | None = None, **values: Any) -> Gpu:
    identity = Identity(compute_capability=capability, virtualization=virtualization)
    return builders.gpu(identity=identity, **values)


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        ("all", "no process is on a GPU"),
        ("none", "the driver does not list the processes here"),
        ("unknown", "no process is seen: not all GPUs have said who is on them"),
    ],
)
def test_an_empty_list_says_nothing_before_it_is_read(listing: Listing, words: str) -> None:
    gpus = (builders.gpu(0), builders.gpu(1, listed=listing))
    assert no_process_text(Frame(host=Host(name="node"), time=0.0, gpus=gpus)) == words
    assert gpus[1].tells_processes is (listing == "all")


def test_a_card_of_its_own_has_none() -> None:
    for usual in (gpu(), builders.gpu(), gpu(virtualization="passthrough"), Gpu(index=0)):
        assert told(usual, memory_total=GIB) == ()
    assert told(gpu(listed="none")) == ()
    assert told(gpu(listed="all"), wsl=True) == ()


def test_unified_memory_is_the_machines() -> None:
    spark = gpu("12.1", memory_total=None, memory_used=None)
    assert told(spark, memory_total=119 * GIB, memory_used=40 * GIB) == (
        "unified memory: the GPU uses the machine's RAM, 40.0G of 119G in use",
    )
    assert told(spark) == ("unified memory: the GPU uses the machine's RAM, - of - in use",)


@pytest.mark.parametrize("capability", ["5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"])
def test_unified_is_an_integrated_gpu_without_memory(capability: str) -> None:
    assert is_unified(gpu(capability, memory_total=None))
    assert not is_unified(gpu(capability, memory_total=GIB))
    assert not is_unified(gpu(capability, memory_total=None, error="GPU is lost"))
    assert not is_unified(gpu("9.0", memory_total=None))
    assert not is_unified(builders.gpu(memory_total=None))


def test_windows_and_virtual_gpus() -> None:
    assert told(gpu(listed="none"), wsl=True) == (
        "WSL: Windows runs the driver, which lists no processes here",
    )
    assert told(gpu(virtualization="vgpu")) == (
        "vGPU: a share of a card; only its host knows power, temperature and clocks",
    )
