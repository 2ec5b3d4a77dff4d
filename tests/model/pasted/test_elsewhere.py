"""Programs that something else starts: what they get is not what the text sets."""

from __future__ import annotations

import pytest

from gputop.model.cuda.pasted.reading import read_pasted
from gputop.model.machine.environment import NAME


def refusal(text: str) -> str | None:
    pasted = read_pasted(text)
    assert pasted is not None
    return pasted.unknown


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --gpu_ids 0,1 t.py",
        "deepspeed --include localhost:1 t.py",
        "srun python t.py",
        "docker run --gpus 2 img python t.py",
    ],
)
def test_a_setting_says_nothing_of_them(command: str) -> None:
    name = command.partition(" ")[0]
    why = f"not understood: what {name} starts it with is not in the text"
    assert refusal(f"unset {NAME}\n{command}") == why
    assert refusal(f"export {NAME}=0\n{command}\n{command}") == why


def test_one_that_sets_the_variable_is_a_program_of_the_text() -> None:
    text = f"accelerate launch --gpu_ids 1 a.py\n{NAME}=0 python b.py"
    assert (refusal(text) or "").startswith("not understood: several programs or values: acc")
    assert refusal(f"tmux attach\nexport {NAME}=0") is None
    assert refusal(f"{NAME}=0 python t.py\ndocker ps") is None


def test_a_unit_writes_its_own_marks_into_values() -> None:
    assert refusal(f"ExecStart=/usr/bin/env {NAME}=%i python t.py") is not None
