"""Builds against the compute capability of the GPUs."""

from __future__ import annotations

import pytest

from gputop.model.doctor.cuda_builds import TESTED, Build, torch_tag
from gputop.model.doctor.kernels import generation, lack

CARDS = {
    "K80": "3.7", "M60": "5.2", "P100": "6.0", "1080 Ti": "6.1", "V100": "7.0", "T4": "7.5",
    "A100": "8.0", "3090": "8.6", "L40S": "8.9", "H100": "9.0", "B200": "10.0", "B300": "10.3",
    "Thor": "11.0", "5090": "12.0", "GB10": "12.1",
}  # fmt: skip
BLACKWELL = {"B200", "B300", "Thor", "5090", "GB10"}
OLD = {"K80", "M60", "P100", "1080 Ti", "V100"}


def unfit(name: str, version: str, cuda: str) -> set[str]:
    """The cards on which it ends with "no kernel image"."""
    build = Build(name, version, cuda)
    found = {card: lack(build, capability) for card, capability in CARDS.items()}
    return {card for card, what in found.items() if what is not None and what.grave}


@pytest.mark.parametrize(
    ("version", "cuda", "cards"),
    [
        ("2.8.0", "12.6", BLACKWELL),
        ("2.14.0+cu126", "12.6", BLACKWELL),
        ("2.5.1+cu124", "12.4", BLACKWELL),
        ("2.9.0", "12.8", OLD - {"V100"}),
        ("2.11.0+cu128", "12.8", OLD),
        ("2.9.0+cu130", "13.0", OLD),
        ("2.11.0", "13.0", OLD),
        ("2.14.0", "13.2", OLD),
        ("2.7.0", "12.8", set()),
        ("2.5.0a0+872d972e41.nv24.10", "12.6", set()),
        ("2.9.0", "", set()),
    ],
)
def test_pytorchs_support_matrix(version: str, cuda: str, cards: set[str]) -> None:
    assert unfit("torch", version, cuda) == cards


def test_other_frameworks() -> None:
    assert unfit("jax", "0.8.0", "13") == OLD
    assert unfit("jax", "0.8.0", "12") == set()
    assert unfit("tensorflow", "2.16.1", "12.3") == set()
    assert unfit("tensorflow", "2.19.0", "12.5") == {"K80", "M60"}


def test_what_is_compiled_first_is_no_error() -> None:
    what = lack(Build("tensorflow", "2.19.0", "12.5"), "12.0")
    assert what is not None
    assert not what.grave
    assert "Blackwell (compute capability 12.0)" in what.text


@pytest.mark.parametrize(
    ("version", "cuda", "capability", "driver", "advice"),
    [
        ("2.11.0", "13.0", "7.0", "13.0", "'torch<2.15' --index-url https://download.pytorch.org/whl/cu126"),
        ("2.8.0", "12.6", "12.0", "13.0", " torch --index-url https://download.pytorch.org/whl/cu130"),
        ("2.8.0", "12.6", "12.0", "12.8", "'torch<2.12' --index-url https://download.pytorch.org/whl/cu128"),
    ],
)  # fmt: skip
def test_the_advice_fits_card_and_driver(
    version: str, cuda: str, capability: str, driver: str, advice: str
) -> None:
    what = lack(Build("torch", version, cuda), capability, driver)
    assert what is not None
    assert what.advice.endswith(advice)
    assert "no kernel image is available" in what.text
    assert f"(compute capability {capability})" in what.text


@pytest.mark.parametrize(
    ("driver", "capabilities", "tag"),
    [
        ("13.0", ["9.0"], "cu130"),
        ("13.0", ["7.0"], "cu126"),
        ("12.8", ["12.0"], "cu128"),
        ("12.2", ["9.0"], "cu126"),
        (None, [], "cu126"),
        ("13.1", ["12.0", "7.5"], "cu130"),
        ("13.0", ["12.0", "6.1"], "cu126"),
    ],
)
def test_which_index_of_pytorchs(driver: str | None, capabilities: list[str], tag: str) -> None:
    assert torch_tag(driver, capabilities) == tag


def test_generations_have_their_names() -> None:
    named = {"2.1": "older than Kepler", "3.7": "Kepler", "5.2": "Maxwell", "6.1": "Pascal",
             "7.2": "Volta", "7.5": "Turing", "8.9": "Ampere or Ada", "9.0": "Hopper",
             "10.3": "Blackwell", "12.1": "Blackwell"}  # fmt: skip
    assert {capability: generation(capability) for capability in named} == named


def test_tensorflow_of_this_year() -> None:
    for version in ("2.19", "2.20", "2.21"):
        assert TESTED[version] == ("12.5", "9.3")
