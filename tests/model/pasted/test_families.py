"""Texts of every family that people paste, judged by hand: no wrong claim, few that are silent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gputop.model.cuda.pasted.meaning import meaning
from gputop.model.cuda.pasted.reading import read_pasted
from gputop.model.cuda.reach import container_set
from gputop.model.machine.environment import NAME, ORDER
from tests.model.inventories import h100, indices
from tests.model.test_visibility_vectors import VECTORS_FILE

CASES: list[dict[str, Any]] = json.loads(
    VECTORS_FILE.with_name("families.json").read_text(encoding="utf-8")
)["cases"]


@pytest.mark.parametrize("case", CASES, ids=[repr(case["text"])[:70] for case in CASES])
def test_nothing_wrong_is_claimed(case: dict[str, Any]) -> None:
    pasted = read_pasted(case["text"])
    assert pasted is not None
    if pasted.unknown is not None:
        assert pasted.unknown.startswith(
            ("not understood: ", "cannot be known from the text: ", "starts no program: ")
        )
        assert (pasted.value, pasted.order, pasted.gpus, pasted.rest) == (None, None, None, ())
        return
    assert case["expect"] != "unknown"
    assert pasted.value == case["expect"]["value"]
    if "gpus" in case:
        assert pasted.gpus == case["gpus"]


ATTACKS: list[dict[str, Any]] = json.loads(
    VECTORS_FILE.with_name("attacked.json").read_text(encoding="utf-8")
)["cases"]


def test_texts_that_were_judged_before_gputop_was_asked() -> None:
    silent = []
    for case in ATTACKS:
        pasted = read_pasted(case["text"])
        assert pasted is not None, case
        claimed = None if pasted.unknown else indices(meaning(pasted, h100(4)).visible)
        assert claimed in (case["expect"], None), case
        silent += [case["text"]] if claimed != case["expect"] else []
    assert len(ATTACKS) > 200
    assert len(silent) <= len(ATTACKS) // 20, silent


def test_most_are_understood() -> None:
    wanted = [case for case in CASES if case["expect"] != "unknown" and "rare" not in case]
    silent = [case["text"] for case in wanted if getattr(read_pasted(case["text"]), "unknown", "")]
    assert len(wanted) > 200
    assert len(silent) <= len(wanted) // 20, silent


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("docker run --gpus '\"device=2,3\"' -e CUDA_VISIBLE_DEVICES=1 img python t.py", [3]),
        ("docker run --gpus '\"device=3,2\"' img python t.py", [2, 3]),
        ("docker run --gpus 2 img python t.py", [0, 1]),
        ("docker run --gpus '\"device=2\"' -e CUDA_VISIBLE_DEVICES=2 img python t.py", []),
        ("docker run --gpus device=GPU-2942190a img python t.py", [2]),
        ("docker run --gpus '\"device=7\"' img python t.py", None),
        ('docker run --gpus "device=$G" img python t.py', None),
        ("environment:\n- NVIDIA_VISIBLE_DEVICES=2,3\n- CUDA_VISIBLE_DEVICES=1", [3]),
        (
            "services:\n  a:\n    deploy:\n      resources:\n        reservations:\n"
            "          devices:\n          - device_ids: ['1', '3']\n"
            "    environment:\n      CUDA_VISIBLE_DEVICES: 1\n",
            [3],
        ),
    ],
)
def test_a_container_counts_its_own_gpus(text: str, gpus: list[int] | None) -> None:
    pasted = read_pasted(text)
    assert pasted is not None
    mapping = meaning(pasted, h100(4))
    assert indices(mapping.visible) == gpus
    if gpus is not None:
        hidden = {hidden_device.device.index for hidden_device in mapping.hidden}
        assert hidden == {0, 1, 2, 3} - set(gpus)
        assert container_set(h100(4), pasted.gpus).devices is not None


def test_what_the_shell_has_already() -> None:
    own = {NAME: "3", ORDER: "PCI_BUS_ID"}

    def given(text: str) -> tuple[str | None, str | None]:
        pasted = read_pasted(text, own)
        assert pasted is not None
        assert pasted.unknown is None
        return pasted.value, pasted.order

    assert given("nohup python t.py &") == ("3", "PCI_BUS_ID")
    assert given("CUDA_VISIBLE_DEVICES=1 python t.py") == ("1", "PCI_BUS_ID")
    assert given("unset CUDA_VISIBLE_DEVICES; python t.py") == (None, "PCI_BUS_ID")
    assert given("env -i python t.py") == (None, None)
    assert given("sudo python t.py") == (None, None)
    assert given("ssh other python t.py") == (None, None)
    assert given("docker run --gpus all img python t.py") == (None, None)
    assert given("CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} python t.py")[0] == "3"
    assert given("import os\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '1')")[0] == "3"
    assert given("CUDA_VISIBLE_DEVICES=2\npython t.py")[0] == "2"


def test_what_sbatch_is_told_holds_in_whatever_order_it_is_told() -> None:
    wrapped = read_pasted(f"{NAME}=1 sbatch --wrap='python t.py' --export=NONE")
    assert wrapped is not None
    assert (wrapped.value, wrapped.rest) == (None, ("python", "t.py"))
