"""Every example of the manual's page on Python runs as it is written."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import gputop
from gputop.manual import FOLDER, blocks, page
from tests.conftest import MachineFactory, needs_everybody, rest_long
from tests.driver import Machine
from tests.sshd import Sshd, sshd

__all__ = ["sshd"]

_PYTHON = (FOLDER / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", _PYTHON, re.S | re.M)
SAYS = {
    "gputop.choose": r"cuda:0 is GPU [26], an NVIDIA H200\n$",
    "gputop.free": r"not enough GPUs: 2 free, 4 requested\n(  GPU \d H200: .*\n){8}",
    "process.command": r"(?s)0 NVIDIA H200 \d+ 0\.\d+\n.*train\.py",
    "in use:": r"(in use: {0: .*7: .*}\n)+",
    'hosts=["node1"': r"(?s).*node1 8 GPUs\n",
    "asyncio": r"8\n\d+\.\d+\n",
    "gputop.mapping": r"cuda:0 is GPU 2\ncuda:1 is GPU 0\nGPU 1 is hidden: entry 4 names it, but",
    "pandas": r"8 GPUs\n",
    "\ngputop.snapshot()\n": r"<pre ",
}
"""What each prints, by a word that it alone has."""
STANDINS = {
    "torch": "",
    "pandas": "def json_normalize(rows):\n    print(len(rows), 'GPUs')\n    rows[0]['uuid']\n",
}
"""Libraries that need not be installed for this."""


def test_each_is_known() -> None:
    own = {word: [text for text in EXAMPLES if word in text] for word in SAYS}
    assert {word: len(texts) for word, texts in own.items()} == dict.fromkeys(SAYS, 1)
    assert len(EXAMPLES) == len(SAYS)


def test_every_name_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)", page("python")))
    assert {*gputop.__all__} - named == {"__version__"}
    headings = [block.text for block in blocks(page("python")) if block.kind == "heading"]
    assert "## Versions" in headings


@pytest.fixture(scope="module")
def h200x8(kept: MachineFactory, sshd: Sshd) -> Machine:
    here = kept("h200x8")
    sshd.host("node1", here.env)
    sshd.host("node2", kept("no-driver").env)
    here.env["GPUTOP_SSH_CONFIG"] = str(sshd.config)
    return here


@pytest.mark.system
@needs_everybody
@rest_long("word", *SAYS)
def test_it_runs(word: str, h200x8: Machine, tmp_path: Path) -> None:
    (text,) = (text for text in EXAMPLES if word in text)
    for name, code in STANDINS.items():
        (tmp_path / f"{name}.py").write_text(code)
    if text.endswith("\ngputop.snapshot()\n"):  # as a notebook does it
        text = text.replace("\ngputop.snap", "\ncell = gputop.snap") + "print(cell._repr_html_())\n"
    (tmp_path / "example.py").write_text(text)
    unset = ["env", "-u", "CUDA_VISIBLE_DEVICES", "-u", "CUDA_DEVICE_ORDER"]
    done = h200x8.run([*unset, sys.executable, str(tmp_path / "example.py")])
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(SAYS[word], done.stdout), json.dumps(done.stdout)
