"""The driver is built on a machine that has no compiler, by several workers at once."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

BUILD = Path(__file__).parent / "build.py"

PIP = """
import pathlib, time
package = pathlib.Path(__file__).parents[1] / "ziglang"
with open(package.parent / "runs", "a") as runs:
    runs.write("once\\n")
package.mkdir(exist_ok=True)
(package / "__init__.py").touch()
time.sleep(0.3)  # half of it is there
(package / "__main__.py").touch()
"""
"""What stands for pip: it installs as slowly as 80 MB come, and counts how often it is asked."""

CALL = """
import os, runpy, sys
compiler = runpy.run_path(sys.argv[1])["_compiler"]()
sys.exit(os.system(" ".join(compiler[:-1])))
"""


def test_workers_install_a_compiler_once(tmp_path: Path) -> None:
    """The one that comes second waits until it is there as a whole."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "venv" / "lib" / version / "site-packages"
    (packages / "pip").mkdir()
    (packages / "pip" / "__main__.py").write_text(PIP)
    env = {"PATH": str(tmp_path / "nothing"), "TMPDIR": str(tmp_path)}
    workers = [
        subprocess.Popen([python, "-c", CALL, BUILD], env=env, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    told = [worker.communicate(timeout=30)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4, told
    assert (packages / "runs").read_text() == "once\n"
