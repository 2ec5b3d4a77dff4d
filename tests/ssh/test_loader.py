"""What the loader takes from the user's cache on a host, and what it leaves alone there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.sources.ssh.carry import Parcel, parcel
from gputop.sources.ssh.start import _RUN_PYTHON

pytestmark = pytest.mark.system

PARCEL = parcel("bz2")
SIZE = len(PARCEL.archive)
ONCE = ["--protocol", "2-2", "--once", "--no-driver", "--no-files"]


def run(home: Path, agent: Parcel, content: bytes = b"") -> list[bytes]:
    """The lines of a loader that is sent this after its offer, and then nothing more."""
    command = [sys.executable, "-I", "-B", "-S", "-c", _RUN_PYTHON, str(len(agent.loader)), *ONCE]
    done = subprocess.run(
        command,
        input=agent.loader + agent.offer + content,
        capture_output=True,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    return done.stdout.splitlines()


def kept(agent: Parcel) -> Parcel:
    """The same, where the cache may be used."""
    return agent._replace(offer=agent.offer.replace(b" 0\n", b" 1\n"))


def other_archive(cache: Path) -> None:
    (cache / "agent").write_bytes(PARCEL.archive[:-1] + bytes([PARCEL.archive[-1] ^ 1]))


def half_an_archive(cache: Path) -> None:
    (cache / "agent").write_bytes(PARCEL.archive[: SIZE // 2])


def link_to_the_archive(cache: Path) -> None:
    (cache / "agent").rename(cache.parent / "elsewhere")
    (cache / "agent").symlink_to(cache.parent / "elsewhere")


def folder_that_is_a_link(cache: Path) -> None:
    cache.rename(cache.parent / "elsewhere")
    cache.symlink_to(cache.parent / "elsewhere")


def folder_that_others_read(cache: Path) -> None:
    cache.chmod(0o750)


def fifo(cache: Path) -> None:
    (cache / "agent").unlink()
    os.mkfifo(cache / "agent")


def folder_in_its_place(cache: Path) -> None:
    (cache / "agent").unlink()
    (cache / "agent").mkdir()


ODD: tuple[Callable[[Path], None], ...] = (
    other_archive, half_an_archive, link_to_the_archive, folder_that_is_a_link,
    folder_that_others_read, fifo, folder_in_its_place,
)  # fmt: skip


def test_the_cache(tmp_path: Path) -> None:
    tmp_path /= "home"
    tmp_path.mkdir()
    lines = run(tmp_path, PARCEL, PARCEL.archive)
    assert [int(line) for line in lines[:8]] == [*range(SIZE, 0, -(1 << 14)), 0]
    assert lines[8].startswith(b'[0,{"kind":"hello"')
    assert list(tmp_path.iterdir()) == []

    run(tmp_path, kept(PARCEL), PARCEL.archive)
    cache = tmp_path / ".cache/gputop"
    assert [path.name for path in cache.iterdir()] == ["agent"]
    assert (cache / "agent").read_bytes() == PARCEL.archive
    assert (cache.stat().st_mode & 0o777, (cache / "agent").stat().st_mode & 0o777) == (
        0o700, 0o600,
    )  # fmt: skip
    lines = run(tmp_path, kept(PARCEL))
    assert lines[0] == b"0"
    assert lines[1].startswith(b'[0,{"kind":"hello"')
    assert run(tmp_path, PARCEL)[0] == b"%d" % SIZE, "without leave it is not looked for"

    for number, change in enumerate(ODD):
        home = tmp_path / str(number)
        (home / ".cache/gputop").mkdir(0o700, parents=True)
        (home / ".cache/gputop/agent").write_bytes(PARCEL.archive)
        change(home / ".cache/gputop")
        assert run(home, kept(PARCEL)) == [b"%d" % SIZE], change.__name__


@pytest.mark.long
def test_a_cache_that_is_wrong_is_written_anew(tmp_path: Path) -> None:
    cache = tmp_path / ".cache/gputop"
    cache.mkdir(0o700, parents=True)
    outside = tmp_path / "outside"
    outside.write_text("keep me")
    (cache / "agent").symlink_to(outside)
    assert b"hello" in run(tmp_path, kept(PARCEL), PARCEL.archive)[8]
    assert run(tmp_path, kept(PARCEL))[0] == b"0"
    assert outside.read_text() == "keep me"
    cache.chmod(0o770)
    (cache / "agent").unlink()
    assert b"hello" in run(tmp_path, kept(PARCEL), PARCEL.archive)[8]
    assert list(cache.iterdir()) == []
