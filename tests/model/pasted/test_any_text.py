"""Any text has an answer, in time: never an exception, never a claim without ground."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.model.cuda.pasted.reading import read_pasted
from gputop.model.machine.environment import NAME
from tests.limits import trouble_within

PIECES = [
    *(
        NAME,
        f"{NAME}=",
        f"{NAME}=1 ",
        f"export {NAME}=2",
        f"os.environ['{NAME}'] = ",
        f"- {NAME}=1",
    ),
    *(
        "python t.py",
        "if ",
        "then ",
        "fi",
        "for i in 0 1; do ",
        "done",
        "case x in ",
        "esac",
        "f() {",
    ),
    *("(", ")", "{", "}", "[[", "]]", "((", "))", "$(", "${", "`", "'", '"', "\\", "\n", "\t", ";"),
    *(
        "&",
        "&&",
        "||",
        "|",
        "<",
        ">",
        "<<EOF\n",
        "EOF\n",
        "<<<",
        "$",
        "#",
        "~",
        "*",
        "?",
        "!",
        "=",
        ",",
    ),
    *(
        "import os\n",
        "def f():\n ",
        "name: ",
        "value: '1'\n",
        "[env]\n",
        '{"env": ',
        "Environment=",
    ),
    *(
        "sudo ",
        "docker run --gpus all -e ",
        "ssh a ",
        "tmux new ",
        "env -S ",
        "srun ",
        "%env ",
        "$env:",
    ),
    *(
        "é",
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\ud800",
        "\ufeff",
        "\u00a0",
        "，",
        "1",
        "0,1",
        "-",
        "set -x ",
    ),
]


def test_pieces_by_chance() -> None:
    chance = Random(12)
    for _ in range(3000):
        text = "".join(chance.choices(PIECES, k=chance.randrange(1, 14)))
        pasted = read_pasted(text, {NAME: "3"} if chance.random() < 0.2 else None)
        assert pasted is None or pasted.unknown is None or pasted.value is None


@settings(max_examples=200)
@given(st.text())
def test_text_of_any_kind(text: str) -> None:
    for whole in (text, f"{NAME}={text} python t.py", f"import os\nos.environ['{NAME}'] = {text}"):
        read_pasted(whole)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 30_000,
        "(" * 20_000 + "x" + ")" * 20_000,
        "$(" * 10_000 + ")" * 10_000,
        "if true; then " * 4_000 + "x" + "; fi" * 4_000,
        "{ " * 5_000 + "x; " + "} ;" * 5_000,
        "x && " * 9_000 + "x",
        "x | " * 9_000 + "x",
        "x; " * 20_000,
        "f() { f; f; }; f; " * 100,
        "f() { g; g; }; g() { h; h; }; h() { f; f; }; f",
        "for a in 1 2 3 4 5 6 7 8 9; do " * 12 + "x;" + " done;" * 12,
        "while x; do " * 40 + "y;" + "done;" * 40,
        "eval " * 3000 + "x",
        "env " * 12_000 + "x",
        "bash -c '" + "x " * 20_000 + "'",
        "[" * 60_000,
        "-(" * 30_000 + "1" + ")" * 30_000,
        "{" * 30_000,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        "- " * 30_000,
        " " * 60_000,
        "\n" * 60_000,
        "a" * 60_000,
        "\\\n" * 30_000,
        "=" * 60_000,
        "a-" * 30_000,
        "`" * 60_000,
        "'" * 60_000,
        "user@host:" * 6_000 + "$ x",
        "0 " * 30_000,
        "set -x " * 8_000,
    ],
    ids=lambda text: text[:12].replace("\n", " "),
)
@pytest.mark.long
def test_very_long_and_very_deep_texts(text: str) -> None:
    """None is read in quadratic time, or anew in each round of a loop."""
    text, begun = text[: 16384 - 100], time.process_time()
    for whole in (
        f"{text}\n{NAME}=1 python t.py",
        f"{NAME}=1 python t.py\n{text}",
        f"{NAME}={text}",
        f"{NAME}=1\n{text}\n{NAME}=1 python t.py",
    ):
        pasted = read_pasted(whole)
        assert pasted is not None
    read_pasted(f"os.environ['{NAME}'] = {text}")
    read_pasted(text)
    assert time.process_time() - begun < 2


def test_a_comment_between_two_commands() -> None:
    pasted = read_pasted(f"{NAME}=1 python t.py && # then\npython u.py")
    assert pasted is not None
    assert pasted.unknown is not None


def test_a_megabyte() -> None:
    pasted = read_pasted(f"{NAME}=1 python t.py\n" * 40_000)
    assert pasted is not None
    assert pasted.unknown == "not understood: it is longer than 16384 characters, or was cut"


def doubled(count: int, last: str) -> str:
    return "A0=0123456789;" + "".join(f"A{n + 1}=$A{n}$A{n};" for n in range(count)) + last


@pytest.mark.system
@pytest.mark.parametrize(
    "text",
    [
        doubled(40, f"{NAME}=$A40 python t.py"),
        doubled(17, "for i in 1 2 3 4; do " + f"{NAME}=0 python $A17;" * 400 + "done"),
        f"A=0123456789;{'A+=$A$A;' * 60}{NAME}=$A python t.py",
        f"f() {{ A=$1$1; f $A; }}; f 0123456789; {NAME}=$A python t.py",
        "import os\na = '0,1'\n" + "a = a + a\n" * 60 + f"os.environ['{NAME}'] = a",
        "import os\na = '0,1'\n" + "a = f'{a}{a}'\n" * 60 + f"os.environ['{NAME}'] = a",
        "import os\na = '0,1'\n" + "a = ','.join([a, a])\n" * 60 + f"os.environ['{NAME}'] = a",
        "import os\na = [0]\n" + "a = [a, a]\n" * 60
        + f"os.environ['{NAME}'] = ','.join(map(str, a))",
        f"import os\nos.environ['{NAME}'] = str(0x{'f' * 9000})",
        f"{NAME} = {'9' * 5000}\n\n[section]\na = 1\n",
        f"services:\n  a:\n    environment:\n      {NAME}: '0'\n    count: {'9' * 5000}\n",
    ],
    ids=["doubled", "arguments", "added", "function", "python +", "python f", "python join",
         "python lists", "python digits", "TOML digits", "Compose digits"],
)  # fmt: skip
def test_what_grows_is_not_expanded(text: str) -> None:
    def read() -> None:
        pasted = read_pasted(text)
        assert pasted is not None
        assert pasted.unknown is not None or pasted.value == "0"

    assert trouble_within(read) == ""


@pytest.mark.system
def test_lists_of_lists_are_not_compared() -> None:
    text = "import os\na = [0]\n" + "a = [a, a]\n" * 40
    text += f"if x:\n  b = 1\nos.environ['{NAME}'] = '0'"
    assert trouble_within(lambda: read_pasted(text)) == ""
