"""`gputop map TEXT` for texts that people paste: the published cases, through the real command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.model.cuda.inventory import frame_inventory
from gputop.model.cuda.mapping_query import MappingQuery, judge, mapping_result
from gputop.model.machine.frame import Frame, Host
from gputop.model.machine.gpu import Gpu
from tests.conftest import MachineFactory, rest_long
from tests.model.test_visibility_vectors import VECTORS_FILE
from tests.test_map import described

CASES: list[dict[str, Any]] = json.loads(
    VECTORS_FILE.with_name("pasted.json").read_text(encoding="utf-8")
)["cases"]
SMALLEST: list[dict[str, Any]] = json.loads(
    VECTORS_FILE.with_name("smallest.json").read_text(encoding="utf-8")
)["cases"]
NO_NAME = "it does not name CUDA_VISIBLE_DEVICES"
OTHER_FORM = "YAML, JSON and units are not read: paste the value alone"
REFUSED = {
    "docker-nvd": NO_NAME,
    "apptainer-env": "what apptainer starts it with is not in the text",
    "accel-only": NO_NAME,
    "deepspeed": NO_NAME,
    "ds-both": "what deepspeed starts it with is not in the text",
    "compose-map-1": OTHER_FORM,
    "compose-map-2": OTHER_FORM,
    "dockerfile": "what ENV does with CUDA_VISIBLE_DEVICES=0,1 is not followed",
    "systemd": OTHER_FORM,
    "csh": "what setenv does with CUDA_VISIBLE_DEVICES is not followed",
    "torchrun-env-after": "what torchrun does with CUDA_VISIBLE_DEVICES=2,3 is not followed",
    "pwsh-sp": "what $env:CUDA_VISIBLE_DEVICES does with $env:CUDA_VISIBLE_DEVICES is not followed",
    "tmux": "what tmux starts it with is not in the text",
    "screen": "what screen starts it with is not in the text",
    "for-loop": "i is set in a block, a pipe or a condition",
    "local-rank": "the text does not define $SLURM_LOCALID",
    "two-jobs-nl": "several programs or values: python a.py: 0; python b.py: 1",
    "echo": "it starts no program and sets nothing",
    "py-int": "1 is not a string that the text spells out",
    "py-var": "args.gpu is not a string that the text spells out",
    "py-twice": "too late: it may already be fixed by torch.cuda.init()",
    "typo-dev": NO_NAME,
    "typo-hip": NO_NAME,
}
"""Published texts of which nothing is claimed, and why."""
REASONS = {
    "late set (CUDA already started)": "too late: it may already be fixed by ",
    "a text without the variable is read as a value": NO_NAME,
    "a program inside $( ) counts as the program": f"known only when it runs|{NO_NAME}",
    "several NAME=VALUE lines: the last wins": "values: it: 0,1; it: 2|what step does with",
    "prose with backquotes": "a command called (?:is|not|needed)",
    "Windows batch without @echo off": "what set does with CUDA_VISIBLE_DEVICES=0,1",
    "SGE directive": "a batch system decides",
    "what a person reads": (
        r"\$1 is known only when it runs|cuda_visible_devices is not a string|a command called CUDA"
        rf"|{NO_NAME}|a call: os.system\(|in comments only|black .: unset; pytest x: none"
    ),
}
"""Why nothing is claimed of the smallest texts, by their cause."""


def ask(folder: Path, text: str, *options: str) -> tuple[int, str, str]:
    """Answer in this process, on a machine with four equal GPUs: status, output, errors."""
    output, errors = StringIO(), StringIO()
    words = ["map", "--inventory", str(described_machine(folder)), *options, "--", argument(text)]
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(errors):
        for name in filter(lambda name: name.startswith("CUDA_"), os.environ):
            patch.delenv(name)
        patch.setattr("gputop.commands.map.write", output.write)
        status = main(words)
    return status, output.getvalue(), errors.getvalue()


def described_machine(folder: Path) -> Path:
    machine = folder / "machine.json"
    machine.write_text(json.dumps(described("h100x4")))
    return machine


def argument(text: str) -> str:
    """As people give it: a value of blanks is refused unless it is called one."""
    return text if text.strip() else f"CUDA_VISIBLE_DEVICES='{text}'"


def devices_of(found: dict[str, Any]) -> list[int] | None:
    return None if found["devices"] is None else [device["gpu"] for device in found["devices"]]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_published_text(case: dict[str, Any], tmp_path: Path) -> None:
    status, text, errors = ask(tmp_path, case["text"], "--json")
    assert errors == ""
    found = json.loads(text)
    if case["id"] in REFUSED:
        assert found["unknown"] == f"not understood: {REFUSED[case['id']]}"
        assert status == 2
        assert (found["value"], found["set"], found["hidden"]) == (None, None, [])
        assert devices_of(found) is None
    else:
        assert status in (0, 1)
        assert "unknown" not in found
        assert case["expect"] in ("any", devices_of(found))
    if case["advice"]:
        said = " ".join(f"{hint['code']} {hint['text']}" for hint in found["advice"])
        assert re.search(case["advice"], said, re.IGNORECASE)


@pytest.mark.parametrize("case", SMALLEST, ids=[repr(case["text"])[:60] for case in SMALLEST])
def test_a_smallest_text(case: dict[str, Any], tmp_path: Path) -> None:
    status, text, _ = ask(tmp_path, case["text"], "--json")
    found = json.loads(text)
    if devices_of(found) is None:
        assert status == 2
        assert re.search(REASONS[case["cause"]], found["unknown"])
    else:
        assert devices_of(found) == case["expect"]


FORMS = ["ctl-plain", "docker-e", "apptainer-env", "accel-only", "py-int", "uuid-full", "empty-sp"]


@pytest.mark.system
@rest_long("id_", *FORMS)
def test_the_real_command_answers_the_same(id_: str, tmp_path: Path) -> None:
    text = next(case["text"] for case in CASES if case["id"] == id_)
    options = ["--json", "--", argument(text)]
    command = [sys.executable, "-m", "gputop", "map", "--inventory"]
    done = subprocess.run(
        [*command, str(described_machine(tmp_path)), *options],
        env={k: v for k, v in os.environ.items() if not k.startswith("CUDA_")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == ask(tmp_path, text, "--json")


def test_the_published_texts_are_those_of_the_files() -> None:
    assert len(CASES) >= 65
    assert len(SMALLEST) >= 36


@lru_cache
def four() -> Frame:
    gpus = tuple(
        Gpu(index=g["index"], uuid=g["uuid"], name=g["name"], pci_bus_id=g["pci_bus_id"])
        for g in described("h100x4")["gpus"]
    )
    return Frame(host=Host(name="node"), time=0.0, gpus=gpus)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_editor_answers_the_same(case: dict[str, Any]) -> None:
    """The mapping pane shows `answer`; it says why in the words of the command."""
    found = mapping_result(MappingQuery(case["text"], None), frame_inventory(four()))
    visible = found.mapping.visible
    if case["id"] in REFUSED:
        assert (found.unknown, visible) == (f"not understood: {REFUSED[case['id']]}", None)
        assert found.mapping.because == found.unknown
    else:
        assert found.unknown is None
        assert visible is not None
        assert case["expect"] in ("any", [device.index for device in visible])
    judge(found, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CUDA_VISIBLE_DEVICES=$GPU python t.py", "not understood: the text does not define $GPU"),
        ("CUDA_VISIBLE_DEVICES='1 python t.py", "not understood: '1 cannot be followed to its end"),
        (
            "kubectl run x --env=CUDA_VISIBLE_DEVICES=1",
            "not understood: what kubectl starts it with",
        ),
    ],
)
def test_what_is_not_known_is_said_in_a_line(text: str, said: str, tmp_path: Path) -> None:
    status, output, errors = ask(tmp_path, text)
    assert (status, errors) == (2, "")
    assert output.startswith(said)
    assert "unset" not in output
    assert "export" not in output
    assert "->" not in output


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("CUDA_VISIBLE_DEVICES=2,3 python t.py --device cuda:1", 0, None),
        ("CUDA_VISIBLE_DEVICES=2,3 python t.py --device 1", 0, None),
        (
            "CUDA_VISIBLE_DEVICES=2,3 python t.py --device cuda:2",
            1,
            "For physical GPU 2 use cuda:0",
        ),
        ("CUDA_VISIBLE_DEVICES=2,3 python t.py --device=2", 1, "For physical GPU 2 use cuda:0"),
        ("CUDA_VISIBLE_DEVICES=2,3 python t.py --device cpu", 0, None),
        ("CUDA_VISIBLE_DEVICES=2,3 python t.py --width=512 --run_id 7 --grid 9", 0, None),
        ("CUDA_VISIBLE_DEVICES=2,3 python t.py --num-workers 8 --video 4 /data/gpu4/x", 0, None),
        ("CUDA_VISIBLE_DEVICES=2,3 python t.py --gpus 5 --devices 6", 0, None),
        ("CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 t.py", 0, None),
        ("CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=4 t.py", 1, "asks for 4 GPUs"),
        (
            "CUDA_VISIBLE_DEVICES= torchrun --nproc_per_node=1 t.py",
            1,
            "asks for 1 GPU, ",
        ),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES']='2,3'\nx.to('cuda:2')", 1, "use cuda:0"),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES']='2,3'\nx.to('cuda:1')", 0, None),
    ],
)
def test_what_the_program_asks_for(
    text: str, status: int, said: str | None, tmp_path: Path
) -> None:
    code, output, _ = ask(tmp_path, text)
    assert code == status
    assert ("error: " in output) == (said is not None)
    assert said is None or said in output


@pytest.mark.system
def test_a_line_inherits_what_the_shell_has(machine: MachineFactory) -> None:
    simulated = machine("h200x8")

    def gpus(text: str, **own: str) -> Any:
        command = [sys.executable, "-m", "gputop", "map", "--json", text]
        env = {**simulated.env, **own}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    status, found = gpus("export CUDA_VISIBLE_DEVCIES=1; python t.py", CUDA_VISIBLE_DEVICES="5")
    assert [device["gpu"] for device in found["devices"]] == [5]
    assert {"name-typo", "shell-inherited"} <= {hint["code"] for hint in found["advice"]}
    _, found = gpus("unset CUDA_VISIBLE_DEVICES; python t.py", CUDA_VISIBLE_DEVICES="5")
    assert len(found["devices"]) == 8
    _, found = gpus("CUDA_VISIBLE_DEVICES=2 python t.py", CUDA_VISIBLE_DEVICES="5")
    assert [device["gpu"] for device in found["devices"]] == [2]
    assert found["advice"] == []
    assert status == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CUDA_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICE=1 python t.py", "CUDA_VISIBLE_DEVICES=0."),
        ("export CUDA_VISIBLE_DEVICE=1 CUDA_VISIBLE_DEVICES=2; python t.py", "DEVICES=2."),
        (
            "import os\nos.environ['CUDA_VISIBLE_DEVICE'] = '1'\n"
            "os.environ['CUDA_VISIBLE_DEVICES'] = '3'",
            "CUDA_VISIBLE_DEVICES=3.",
        ),
        ("CUDA_VISIBLE_DEVICES=$G CUDA_VISIBLE_DEVICE=1 python t.py", "no GPU is hidden by it"),
        ("CUDA_VISIBLE_DEVICE=1 python t.py", "every GPU is visible"),
    ],
)
def test_a_misspelt_name_is_judged_beside_what_counts(text: str, said: str, tmp_path: Path) -> None:
    _, output, _ = ask(tmp_path, text)
    assert said in output
    assert ("every GPU is visible" in output) == (said == "every GPU is visible")
