"""Builds against the compute capability of the GPUs and the CUDA of the driver."""

from __future__ import annotations

import pytest

from gputop.model.doctor.builds import Build, kernels_for, runs_on

CARDS = {
    "K80": "3.7", "M60": "5.2", "P100": "6.0", "1080 Ti": "6.1", "V100": "7.0", "T4": "7.5",
    "A100": "8.0", "3090": "8.6", "L40S": "8.9", "H100": "9.0", "B200": "10.0", "B300": "10.3",
    "Thor": "11.0", "5090": "12.0", "GB10": "12.1",
}  # fmt: skip
BLACKWELL = {"B200", "B300", "Thor", "5090", "GB10"}
OLD = {"K80", "M60", "P100", "1080 Ti", "V100"}


@pytest.mark.parametrize(
    ("listed", "none", "ptx"),
    [
        ("sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90", {"K80"} | BLACKWELL, set()),
        ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", OLD | {"Thor"}, set()),
        ("sm_60 sm_70 sm_80 sm_89 compute_90", {"K80", "M60"}, BLACKWELL | {"H100"}),
        ("sm_86", set(CARDS) - {"3090", "L40S"}, set()),
        ("sm_90a", set(CARDS) - {"H100"}, set()),
        ("sm_100a sm_120", set(CARDS) - {"B200", "5090", "GB10"}, set()),
        ("sm_100f", set(CARDS) - {"B200", "B300"}, set()),
        ("compute_90a", set(CARDS) - {"H100"}, {"H100"}),
        ("what nobody knows", set(CARDS), set()),
    ],
)
def test_on_which_cards_a_build_runs(listed: str, none: set[str], ptx: set[str]) -> None:
    found = {card: kernels_for(listed.split(), number) for card, number in CARDS.items()}
    assert {card for card in found if found[card] == "none"} == none
    assert {card for card in found if found[card] == "ptx"} == ptx


@pytest.mark.parametrize(
    ("cuda", "name"),
    [
        ("9.0", "libcudart.so.9.0"),
        ("10.1.243", "libcudart.so.10.1"),
        ("11.2", "libcudart.so.11.0"),
        ("12.5.1", "libcudart.so.12"),
        ("13", "libcudart.so.13"),
    ],
)
def test_the_runtime_library_of_a_cuda(cuda: str, name: str) -> None:
    assert tuple(Build("tensorflow", "2", cuda, "8.9").libraries()) == (name, "libcudnn.so.8")
    assert tuple(Build("tensorflow", "2", cuda).libraries()) == (name,)
    assert tuple(Build("tensorflow", "2", "").libraries()) == ()


@pytest.mark.parametrize(
    ("cuda", "driver", "runs"),
    [("10.1", "10.0", False), ("10.0", "13.0", True), ("12.8", "12.2", True),
     ("13.0", "12.9", False), ("11.8", "11.0", True), ("12", "12.4", True)],
)  # fmt: skip
def test_which_driver_runs_which_build(cuda: str, driver: str, runs: bool) -> None:
    assert runs_on(cuda, driver) is runs
