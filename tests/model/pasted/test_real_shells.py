"""What gputop claims of a text is what a real shell does with it; nothing may always be claimed.

The programs that the texts start are replaced on PATH by one that notes its variables.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.model.cuda.pasted.reading import Pasted, read_pasted
from tests.conftest import needed, rest_long
from tests.model.pasted.shell_grammar import Grammar, RealShell
from tests.test_map_pasted import CASES

pytestmark = pytest.mark.system

TEXTS = 400
SHELLS = ["bash", "dash", "ksh", "mksh", "zsh"]
# Of shell texts in which the shell itself starts a program that stands on PATH here.
_ABSENT = ("docker", "podman", "apptainer", "sudo", "tmux", "screen", "deepspeed", "vllm")


def real(folder: Path, text: str, pasted: Pasted, shell: str) -> set[tuple[str | None, str | None]]:
    """Run a text; one that starts nothing is followed by a program."""
    return RealShell(folder).run(text if pasted.rest else f"{text}\npython probe", shell)


def claim(text: str) -> Pasted | None:
    """What gputop claims; None: nothing."""
    pasted = read_pasted(text)
    return None if pasted is None or pasted.unknown is not None else pasted


def check(text: str, shell: str = "bash") -> str:
    """Hold a claim against the shell; what came of it."""
    pasted = claim(text)
    if pasted is None:
        return "nothing claimed"
    if "s.sh" in text:
        return "it runs a file that it writes, of which nothing is said"
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        seen = real(Path(folder), text, pasted, shell)
    if not seen:
        return "nothing started"
    if not pasted.rest and seen == {(None, None)} and pasted.value is not None:
        return "a line that is not written to its end"
    assert seen == {(pasted.value, pasted.order)}, f"{shell} gives {seen}:\n{text}"
    return "right"


def test_many_texts_by_chance() -> None:
    """Hundreds of texts, the same in every run: no wrong claim, and many right ones."""
    came: Counter[str] = Counter(check(Grammar(Random(seed)).text()) for seed in range(TEXTS))
    assert came["right"] >= TEXTS // 16


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
@pytest.mark.long
def test_texts_that_hypothesis_makes_smaller(chance: Random) -> None:
    check(Grammar(chance).text())


@pytest.mark.parametrize(
    "text",
    [
        "train.py; export CUDA_VISIBLE_DEVICES=0; O=$(python train.py); wait",
        "CUDA_VISIBLE_DEVICES=0 python a.py; X='torchrun t.py'; eval \"$X\"",
        "CUDA_VISIBLE_DEVICES=2 CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES},3 setsid -w python",
        "source <(echo 'accelerate t.py'); CUDA_VISIBLE_DEVICES=0 builtin mytrain t.py",
    ],
)
def test_a_program_that_a_word_starts_counts(text: str) -> None:
    assert check(text) == "nothing claimed"


def of_a_shell(text: str) -> bool:
    """Tell a text of a shell whose programs are here."""
    if any(word in text.split() for word in _ABSENT) or "\x1b" in text:
        return False
    if "environ" in text or "gpu_ids" in text:
        return False
    return not text.startswith(
        ("ENV ", "Environment=", "setenv", "$env", "!", "CUDA_VISIBLE_DEVICES:")
    )


OF_A_SHELL = [case for case in CASES if of_a_shell(case["text"])]


@pytest.mark.parametrize("case", OF_A_SHELL, ids=[case["id"] for case in OF_A_SHELL])
def test_a_published_text_in_a_real_shell(case: dict[str, str]) -> None:
    check(case["text"])


# What POSIX says of simple lines holds in each shell; `time`, arrays and the like are bash's.
PLAIN = [
    "CUDA_VISIBLE_DEVICES=1 nohup python x.py > log 2>&1 &\nwait",
    "export CUDA_VISIBLE_DEVICES=0,1; python t.py | tee log",
    "cd src && CUDA_VISIBLE_DEVICES=1 python a.py",
    "CUDA_VISIBLE_DEVICES=2 sh -c 'python t.py'",
    "CUDA_VISIBLE_DEVICES=3 env -u CUDA_VISIBLE_DEVICES python t.py",
    "CUDA_VISIBLE_DEVICES=1 env CUDA_VISIBLE_DEVICES=2 nice -n 3 python t.py",
    "for i in 0 1; do CUDA_VISIBLE_DEVICES=2 python t.py --fold $i; done",
    "if true; then CUDA_VISIBLE_DEVICES=2 python t.py; fi",
    "CUDA_VISIBLE_DEVICES=0,\\\n1 python t.py",
    "CUDA_VISIBLE_DEVICES=1 \\\n  python t.py",
    "X=2; CUDA_VISIBLE_DEVICES=$X python t.py",
    "CUDA_VISIBLE_DEVICES='' python t.py",
    "CUDA_VISIBLE_DEVICES= python t.py",
    'CUDA_VISIBLE_DEVICES="0,1" timeout 5 python t.py',
    "{ CUDA_VISIBLE_DEVICES=1 python t.py; } 2>&1 | cat",
    "set -a; CUDA_VISIBLE_DEVICES=1; set +a; python t.py",
    "export CUDA_VISIBLE_DEVICES=1 # all but 0\npython t.py",
    "until CUDA_VISIBLE_DEVICES=1 python t.py; do sleep 1; done",
    "CUDA_VISIBLE_DEVICES=“0,1” python t.py",
    "true && CUDA_VISIBLE_DEVICES=1 python t.py || echo failed",
]


@rest_long("shell", *SHELLS)
def test_plain_lines_in_every_shell(shell: str) -> None:
    needed(shell, shell)
    for text in PLAIN:
        assert check(text, shell) == "right", text


FISH = [
    "env CUDA_VISIBLE_DEVICES=1 python t.py",
    "CUDA_VISIBLE_DEVICES=1 python t.py",
]
CSH = [
    "env CUDA_VISIBLE_DEVICES=2 python t.py",
]


@pytest.mark.parametrize(("shell", "texts"), [("fish", FISH), ("tcsh", CSH)])
def test_lines_of_other_shells(shell: str, texts: list[str]) -> None:
    needed(shell, shell)
    for text in texts:
        assert check(text, shell) == "right", text


def test_make_gives_its_variables_on(tmp_path: Path) -> None:
    make = needed("make", "make")
    place = RealShell(tmp_path)
    (place.folder / "work" / "Makefile").write_text("train:\n\tpython t.py\n")
    text = f"CUDA_VISIBLE_DEVICES=1 {make} train"
    pasted = claim(text)
    assert pasted is not None
    assert place.run(text) == {(pasted.value, pasted.order)} == {("1", None)}
    assert claim(f"{make} train CUDA_VISIBLE_DEVICES=1") is None


def test_the_shells_run_nothing_of_gputops() -> None:
    """Reading a text runs nothing of it."""
    with TemporaryDirectory() as folder:
        mark = Path(folder) / "mark"
        for text in (
            f"CUDA_VISIBLE_DEVICES=$(touch {mark}) python t.py",
            f"touch {mark}; CUDA_VISIBLE_DEVICES=1 python t.py",
            f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = str(open('{mark}', 'w'))",
        ):
            read_pasted(text)
        assert not mark.exists()
