"""The manual's page of the articles' examples is true: every row is run, and says what it claims.

Machines and logs are in data/articles. Their sources, by the number of the article: 000 xla_only,
k40c; 001 four, masked, full, xla_service, physical_devices; 002 no_gpu, k520, k520_placed,
soft_placement, refused; 004 eager, matmul.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.manual import FOLDER

HERE = Path(__file__).parent
PAGE = (FOLDER / "examples.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(gputop map --inventory [^`]+)` \| ([^|]+) \| (\w+) \|$", PAGE, re.M)


@pytest.mark.parametrize(("command", "claims", "article"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row(
    command: str,
    claims: str,
    article: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(HERE / "data" / "articles")
    program, *arguments = shlex.split(command, comments=True)
    status = main(arguments)
    output = capsys.readouterr()
    assert (program, output.err) == ("gputop", "")
    # A line that starts no program, with its mistake explained, gives no answer.
    assert status in (0, 1) or (status == 2 and "masks nothing" in claims)
    said = " ".join(output.out.split())
    assert [claim for claim in re.findall("`([^`]+)`", claims) if claim not in said] == []
    # Nothing is claimed but in words of the output.
    assert claims.count("`") > 0
    assert re.sub("`[^`]+`", "", claims).strip() == ""
    assert article in ("acceleration", "allocation", "book", "practice", "guide")


def test_no_row_is_passed_over() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROWS) == 77


def test_every_log_and_every_machine_is_used() -> None:
    words = {word for command, _, _ in ROWS for word in command.split()}
    assert {path.name for path in (HERE / "data" / "articles").iterdir()} - words == set()
