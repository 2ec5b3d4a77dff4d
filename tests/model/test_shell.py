"""Lines for a shell: real shells read them back, and run nothing of what others wrote."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gputop.model.cuda.advice import text_advice
from gputop.model.cuda.export import export_line, quoted, uuid_export_line, why_no_line
from gputop.model.cuda.resolve import resolve
from tests.conftest import needed
from tests.model.inventories import h100

SHELLS = {"dash": "dash", "bash": "bash", "busybox": "busybox", "zsh": "zsh"}
"""Programs, and the packages that have them."""
RUNS_CODE = [
    "0\\t' ;touch X #", "0' ;touch X #", "0$'\\'' ;touch X #", "';touch X;'",
    "`touch X`", "$(touch X)", "0;touch X", "0|touch X", "0&touch X", "0>X", "!touch", "=touch",
    "a:=ls", "~root", "a:~root", "\\';touch X #", "'\\'';touch X #", "$HOME", "${IFS}", "*", "?",
    "[a-z]*", "{a,b}", "a b", "#", "", "-", "--", "-n", "-1", "-1,0", "'", "''", "\\", "\\\\", '"',
    "é", "０，１", "x" * 2000, "a=b", "%s", "0\\x27;touch X #", "\\c", "\\0", "^touch^X",
    "é\\';touch X #", "A''B''", "$'0\\t\\' ;touch X #'",
]  # fmt: skip
NOT_QUOTED = [
    "0\n1", "0\r1", "0\t1", "\x1b[31m", "0\x00", "\x7f", "\x9b31m", "\u202e0", "\u200b0", "0\udcff",
    "\u00a00", "\ue000", "\U000e0041", "0\ufe0f", "x" * 2001, "\x03", "'\n;touch X #", "\u2028",
]  # fmt: skip


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A shell in a folder of its own, without settings."""
    program = needed(request.param, SHELLS[request.param])
    if request.param == "busybox":
        return [program, "sh"]
    return [program, "-f"] if request.param == "zsh" else [program]


def run_by(shell: list[str], lines: Iterable[str], folder: Path) -> bytes:
    """What the shell has as CUDA_VISIBLE_DEVICES after each; nothing else has come of them."""
    folder.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_ALL": "C.UTF-8"}
    script = folder / "script"
    script.write_text("".join(f"{line}\nprintenv CUDA_VISIBLE_DEVICES\n" for line in lines))
    done = subprocess.run(
        [*shell, str(script)], cwd=folder, env=environ, capture_output=True, check=False
    )
    script.unlink()
    assert list(folder.iterdir()) == []
    assert done.stderr == b""
    return done.stdout


def printed(values: Iterable[str]) -> bytes:
    """What printenv writes of them, a line each."""
    return b"".join(os.fsencode(value) + b"\n" for value in values)


@pytest.mark.system
def test_a_shell_reads_a_value_back(shell: list[str], tmp_path: Path) -> None:
    lines = [export_line(resolve(value, h100(2), order=value)) for value in RUNS_CODE]
    read = run_by(shell, [line for line in lines if line is not None], tmp_path / "cwd")
    assert read == printed(RUNS_CODE)


@pytest.mark.parametrize("text", ["set {}={}; python t.py", "{} = {} python t.py", "{}=0;{} x"])
def test_a_line_that_advice_gives_has_nothing_that_a_shell_runs(text: str) -> None:
    for value in (*RUNS_CODE, *NOT_QUOTED):
        code = text.format("CUDA_VISIBLE_DEVICES", value)
        for hint in text_advice(code, None, None, is_known=False):
            assert hint.text.isprintable(), value
            assert re.fullmatch(r"[\w ,.;:'=$()-]*", hint.text), value
            written = re.search(r"(?:Use|Write) (.*)[.]", hint.text)
            assert written is None or re.fullmatch(r"[\w =,-]*", written[1]), value


@pytest.mark.system
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.text("'\\$ ;#`\"!~=", max_size=12)
)
@example("0\\t' ;touch X #")
def test_any_text_is_read_back_or_refused(shell: list[str], tmp_path: Path, value: str) -> None:
    mapping = resolve(value, h100(2))
    line = export_line(mapping)
    assert (line is None) == (why_no_line(mapping) is not None)
    if line is not None:
        assert "\n" not in line
        assert run_by(shell, [line], tmp_path / "cwd") == printed([value])


@pytest.mark.parametrize("value", NOT_QUOTED)
def test_what_cannot_be_shown_as_it_is_is_refused(value: str) -> None:
    mapping = resolve(value, h100(2))
    assert quoted(value) is None
    assert export_line(mapping) is None
    assert (why_no_line(mapping) or "").startswith("no shell line: CUDA_VISIBLE_DEVICES ")
    assert (why_no_line(mapping) or "").isascii()


def test_an_order_is_refused_as_well() -> None:
    mapping = resolve("1,0", h100(2), order="PCI_BUS_ID\n;touch X")
    assert export_line(mapping) is None
    assert "CUDA_DEVICE_ORDER has" in (why_no_line(mapping) or "")
    assert export_line(resolve("1,0", h100(2), order="PCI_BUS_ID")) is not None
    assert why_no_line(resolve(None, h100(2))) is None


def test_what_a_shell_would_take_for_more_is_in_quotes() -> None:
    """zsh: `=ls` is a path, `~` and what follows a colon, too."""
    for plain in ("0", "0,1", "GPU-4e007c1a", "MIG-GPU-4e007c1a/1/0", "-1", "-1,0", "1.5"):
        assert quoted(plain) == plain
    for other in ("", "=ls", "a=b", "~", "a:b", "-", "-n", "--x", "é", "a b", "%1", "@x", "+"):
        assert (quoted(other) or "").startswith("'")


def test_uuids_need_no_quotes() -> None:
    line = uuid_export_line(resolve("1,0", h100(2), order="PCI_BUS_ID")) or ""
    assert "'" not in line
    assert shutil.which("sh")
