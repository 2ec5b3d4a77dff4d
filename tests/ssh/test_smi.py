"""A machine with neither gputop nor Python 3.9, by nvidia-smi and /proc."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.export.json import frame_json
from gputop.export.table import table
from gputop.model.health.findings import findings
from gputop.model.health.free import is_free
from gputop.model.machine.frame import Frame, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.signals import Target
from gputop.protocol.codec import encode
from gputop.protocol.messages import Checks, Detail, Ping, Probe, Reply, Signal, Stack
from gputop.sources.ask import ask
from gputop.sources.source import REFUSED
from gputop.sources.ssh.smi import WORDS, SmiReader, smi_text
from gputop.sources.ssh.smi_values import FIELDS
from tests.agent.driving import Agent, python_on_gpu
from tests.conftest import ME, NESTED, MachineFactory, needs_everybody
from tests.driver import Machine, nvidia_smi
from tests.patience import until
from tests.ssh.reading import first_frame, source, why_not
from tests.ssh.test_carried import folder_of
from tests.sshd import Sshd, sshd

__all__ = ["sshd"]

TOOLS = "readlink", "tr"
MORE_TOOLS = "getconf", "getent", "timeout"
FIRST = "pid:[4026531836]"
GPU = "GPU-0"


def values(index: int, count: int = 1, **other: str) -> str:
    """A GPU as nvidia-smi tells it."""
    usual = {
        "index": str(index), "count": str(count), "driver_version": "470.57",
        "uuid": f"GPU-{index}", "name": "Tesla V100", "pstate": "P0", "compute_mode": "Default",
        "memory.total": "16160",
        "memory.used": "1024", "utilization.gpu": "97", "power.draw": "120.50", "clocks.sm": "1380",
        "persistence_mode": "Enabled", "mig.mode.current": "[N/A]",
    }  # fmt: skip
    row = {**dict.fromkeys(FIELDS, "[N/A]"), **usual, **other}
    return "gpu " + ", ".join(row.values())


def head(space: str = FIRST) -> list[str]:
    """What a machine tells first."""
    return ["host old\x1b[2J", "boot b00", "btime 1700000000", "cpus 4", "page 4096",
            f"space {space}", f"fields {','.join(FIELDS)}"]  # fmt: skip


def round_(uptime: float, busy: int, ticks: int) -> str:
    """What a round begins with, on a machine with a process that has used so many ticks."""
    stat = f"7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 3 0 500 9999 25"
    return "\x1e".join(
        [
            f"uptime {uptime} 1.0", f"cpu cpu {busy} 0 0 {busy} 0 0 0 0 0 0",
            "MemTotal: 1000", "MemAvailable: 600", f"app {GPU} 7 512", f"stat {stat}",
            "app No devices", f"app {GPU} 8 [N/A]", "user 7 alice",
            "command 7 python  train.py\x1b[2J ",
        ]
    )  # fmt: skip


def read(lines: list[str], reader: SmiReader | None = None) -> list[Frame | Reply]:
    """What is made of lines."""
    reader = reader or SmiReader(1.0)
    told = (reader.read(line.encode("utf-8", "surrogateescape") + b"\n") for line in lines)
    return [message for message in told if message is not None]


SEVEN = ProcessId(7, 100)


def test_two_rounds() -> None:
    lines = [*head(), round_(1000.0, 100, 50), values(0), round_(1002.0, 150, 250), values(0)]
    first, second = read(lines)
    assert isinstance(first, Frame)
    assert isinstance(second, Frame)
    assert (first.host.cpu, second.host.cpu) == (None, 0.5)
    assert (second.host.name, second.host.memory_used) == ("old�[2J", 400 * 1024)
    assert (second.time, second.interval, second.driver_version) == (1700001002.0, 1.0, "470.57")
    [gpu] = second.gpus
    assert (gpu.uuid, gpu.utilization, gpu.power, gpu.sm_clock) == (GPU, 0.97, 120.5, 1380 * 10**6)
    assert (gpu.temperature, gpu.mig_mode, gpu.persistence_mode) == (None, None, True)
    assert (gpu.memory_used, gpu.compute_mode, gpu.pstate) == (1 << 30, "default", 0)
    assert gpu.memory_unaccounted is None  # it is not told how much 8 holds
    train = Process(
        pid=7, start_ticks=500, start_time=1700000005.0, gpu_uuid=GPU, gpu_memory=512 << 20,
        user="alice", command="python  train.py�[2J", cpu=1.0, rss=25 * 4096, state="S",
        parent=1, threads=3,
    )  # fmt: skip
    assert second.processes == (train, Process(pid=8, gpu_uuid=GPU, elsewhere=True))
    assert first.processes[0] == replace(train, cpu=None)


def test_a_card_of_which_nothing_is_said_is_silent_and_not_free() -> None:
    said = dict.fromkeys(set(FIELDS) - {"index", "count", "driver_version"}, "[GPU is lost]")
    [frame] = read([*head(), round_(1000.0, 100, 50), values(0, 1, **said)])
    assert isinstance(frame, Frame)
    [gpu] = frame.gpus
    assert (gpu.state, gpu.stale_for) == ("silent", None)
    assert [(f.level, f.text) for f in findings(frame, gpu)] == [("error", "it does not answer")]
    assert not is_free(frame, gpu)
    assert "no answer" in table(frame, 300)


def test_an_integer_that_is_none() -> None:
    gpu = values(0, 1, **{"ecc.errors.uncorrected.volatile.total": "0.5", "fan.speed": "30.5"})
    [frame] = read([*head(), round_(1000.0, 100, 50), gpu])
    assert isinstance(frame, Frame)
    assert (frame.gpus[0].ecc_uncorrected, frame.gpus[0].fan) == (None, 0.305)


def test_in_a_container_nobody_is_known_to_be_off_a_gpu() -> None:
    [frame] = read([*head("pid:[4026532000]"), round_(1000.0, 100, 50), values(0)])
    assert isinstance(frame, Frame)
    assert frame.host.nested
    assert frame.gpus[0].listed == "ours"
    assert not any(is_free(frame, gpu) for gpu in frame.gpus)
    assert [process.command for process in frame.processes] == [None, None]


def test_a_gpu_that_goes_away_in_the_middle_and_the_end() -> None:
    begun = round_(1000.0, 100, 50)
    reader = SmiReader(1.0)
    lines = [*head(), begun, values(0, 2), "said Unable to determine the device handle\x1b[2J"]
    assert read(lines, reader) == []
    [frame] = read([begun], reader)
    assert isinstance(frame, Frame)
    assert len(frame.gpus) == 1
    with pytest.raises(SourceError, match="ended there: Unable to determine the device handle�"):
        read(["end"], reader)


def test_why_nvidia_smi_fails_may_take_several_lines() -> None:
    why = "Failed to initialize NVML: Driver/library mismatch", "NVML library version: 570.124"
    with pytest.raises(SourceError, match="ended there: {}; {}$".format(*why)):
        read([*head(), *(f"said {line}" for line in (*why, why[1], "")), "end"])
    with pytest.raises(SourceError, match="ended there: it printed nothing"):
        read([*head(), "said ", "end"])


def test_questions_have_an_answer() -> None:
    """Between frames, each in its turn."""
    reader = SmiReader(1.0)
    questions = [
        Ping("p"), Checks(id="c"), Signal("s", (Target(SEVEN),), 15, 1.0), Detail(SEVEN, id="d"),
        Stack(SEVEN, "t"), Probe("0", None, "q"),
    ]  # fmt: skip
    for question in questions:
        reader.refuse(encode(question))
    told = read([*head(), round_(1000.0, 100, 50), values(0)], reader)
    assert isinstance(told[-1], Frame)
    replies = [reply for reply in told if isinstance(reply, Reply)]
    assert replies == [Reply(request=id_, error=REFUSED) for id_ in ("c", "s", "d", "t", "q")]


@pytest.mark.parametrize(
    "record", ["Mem{0}{1}: 1", "app GPU-1 {0} {1}", "command {0} {1}", "cpu {1}"]
)
def test_a_machine_that_only_talks_fills_no_memory(record: str) -> None:
    reader = SmiReader(1.0)
    lines = [record.format(number, "x " * 5000) for number in range(2000)]
    with pytest.raises(SourceError, match="lists more processes than a machine can have"):
        read(lines, reader)
    assert len(reader._facts) < 20


def test_whatever_comes_can_be_drawn_or_is_one_error() -> None:
    lines = [*head(), *[round_(1000.0, 100, 50), values(0, 2), values(1, 2)] * 3]
    whole = "\n".join(lines).encode()
    drawn, errors = 0, set()
    for seed in range(300):
        dice, data = random.Random(seed), bytearray(whole)
        for _ in range(dice.choice((1, 9))):
            at = dice.randrange(len(data))
            data[at : at + dice.randrange(9)] = dice.choice(
                (b"", b"\n", b"9" * 400, b"-", b", ", b"\x1b[2J", b"nan", dice.randbytes(4))
            )
        try:
            told = read(data.decode("utf-8", "surrogateescape").split("\n"))
        except SourceError as error:
            errors.add(str(error))
            continue
        for frame in told:
            assert isinstance(frame, Frame)
            assert (table(frame, 300) + frame_json(frame)).replace("\n", "").isprintable()
            drawn += 1
    assert drawn > 300
    assert all(map(str.isprintable, errors))


GPU_FACTS = (
    "index", "uuid", "name", "pci_bus_id", "memory_total", "memory_used", "power_limit", "sm_clock",
    "sm_clock_max", "memory_clock", "fan", "pstate", "persistence_mode", "display_active",
    "compute_mode", "ecc_uncorrected", "mig_mode", "listed", "state",
)  # fmt: skip
PROCESS_FACTS = (
    "pid", "start_ticks", "start_time", "gpu_uuid", "gpu_memory", "state", "parent", "threads",
    "user", "command",
)  # fmt: skip


def same(rows: Sequence[Gpu | Process], facts: Sequence[str]) -> list[dict[str, Any]]:
    """Facts of GPUs or of processes that both tell, memory in whole MiB, as nvidia-smi rounds."""
    told = [{fact: getattr(row, fact) for fact in facts} for row in rows]
    for row in told:
        row.update((fact, -(-row[fact] >> 20)) for fact in facts if "memory_" in fact and row[fact])
    return sorted(told, key=str)


SHELLS = [shell for shell in ("dash", "bash", "busybox") if Path("/bin", shell).exists()]


def folder(path: Path, *programs: str) -> str:
    """A folder to be all of PATH on a machine without Python; nvidia-smi is there."""
    made = folder_of(path, **{name: str(shutil.which(name)) for name in programs})
    nvidia_smi.install(path)
    return made


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH where there is what nearly every machine has."""
    return folder(tmp_path_factory.mktemp("bare") / "bin", *TOOLS, *MORE_TOOLS)


def group(leader: int) -> list[str]:
    """The states of the processes of a group that still run."""
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, number = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
            states += [state] * (int(number) == leader and state != "Z")
    return states


def frames_of(machine: Machine, path: str, shell: str = "/bin/sh") -> list[Frame]:
    """The first two frames that the script tells in a shell with that PATH; then all of it ends."""
    with subprocess.Popen(
        [*shell.split(), "-c", smi_text(0.2).decode()], env={**machine.env, "PATH": path},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    ) as program:  # fmt: skip
        assert program.stdin
        assert program.stdout
        reader, frames = SmiReader(0.2), list[Frame]()
        while len(frames) < 2:
            message = reader.read(program.stdout.readline())
            frames += [message] if isinstance(message, Frame) else []
        program.stdin.close()
        until(lambda: not group(program.pid), within=20)
    return frames


HOSTILE = """
import sys
open("/proc/self/comm", "w").write("b) \\n\\x1eboot e")
print(flush=True)
sys.stdin.read()  # \x1eboot evil\x1e \x1b[2J"""
"""A program whose name and command line have the records of another machine in them."""


@pytest.mark.system
@pytest.mark.parametrize("shell", SHELLS)
def test_any_shell_tells_what_an_agent_tells(
    shell: str, tools: str, machine: MachineFactory
) -> None:
    here = machine("h200x8")
    with python_on_gpu(here, HOSTILE) as (hostile, _):
        with Agent(here) as agent:
            expected = msgspec.convert([agent.line(), agent.refresh()][-1], Frame)
        words = f"/bin/{shell} sh" if shell == "busybox" else f"/bin/{shell}"
        first, second = frames_of(here, tools, words)
    assert hostile.pid in [process.pid for process in second.processes]
    assert (second.driver_version, second.cuda_version) == ("580.95.05", "13.0")
    assert (second.host.boot_id, second.host.cpu_count) == (
        expected.host.boot_id, expected.host.cpu_count,
    )  # fmt: skip
    assert same(second.gpus, GPU_FACTS) == same(expected.gpus, GPU_FACTS)
    facts = ("pid", "gpu_uuid", "gpu_memory") if NESTED else PROCESS_FACTS
    assert same(second.processes, facts) == same(expected.processes, facts)
    assert same(first.processes, PROCESS_FACTS) == same(second.processes, PROCESS_FACTS)
    assert [is_free(second, gpu) for gpu in second.gpus] == [
        is_free(expected, gpu) for gpu in expected.gpus
    ]
    assert None not in (second.host.cpu, second.host.memory_used)
    assert (second.processes[0].cpu is None) == NESTED


@needs_everybody
@pytest.mark.system
def test_a_long_command_line_costs_no_other_its_own(tools: str, machine: MachineFactory) -> None:
    here = machine("h200x8")
    code = f"import sys; print(flush=True); sys.stdin.read()  # {'x' * 100_000}"
    with python_on_gpu(here, code) as (program, _):
        frame, _ = frames_of(here, tools)
    command = next(str(row.command) for row in frame.processes if row.pid == program.pid)
    assert (command[-3:], len(command)) == ("xx…", 4096)
    assert None not in [row.command for row in frame.processes]


@pytest.mark.system
@pytest.mark.parametrize("programs", [("readlink",), ()])
def test_what_a_poorer_machine_does_not_tell(
    programs: tuple[str, ...], kept: MachineFactory, tmp_path: Path
) -> None:
    """Without readlink it is not known whether the PIDs are those of the driver."""
    frame, _ = frames_of(kept("h200x8"), folder(tmp_path / "bin", *programs))
    assert {process.rss for process in frame.processes} == {None}
    assert frame.host.cpu_count == os.cpu_count()
    users = {process.user for process in frame.processes}
    is_known = bool(programs) and not NESTED
    assert users == ({ME} if is_known else {None})
    assert {gpu.listed for gpu in frame.gpus} == {"all" if is_known else "ours"}
    names = {str(process.command)[0] for process in frame.processes}
    assert names == ({"["} if is_known else {"N"})


@pytest.mark.system
def test_over_ssh(sshd: Sshd, kept: MachineFactory, tmp_path: Path) -> None:
    """And with an nvidia-smi that knows fewer fields."""
    path = folder(tmp_path / "bin", *TOOLS)
    nvidia_smi.install(tmp_path / "bin", without="mig.mode.current")
    host = sshd.host("old", kept("h200x8").env, path=path)
    before = sshd.files(host)
    with source(host, 0.2) as opened:
        opened.remember(True)
        frame = first_frame(opened)
        assert opened.past is None
        assert [gpu.mig_mode for gpu in frame.gpus] == [None] * 8
        assert frame.host.requested_name == "old"
        assert opened.link[:3] == ("connected", "nvidia-smi", WORDS)
        assert opened.link_finding
        assert opened.link_finding.text.startswith(
            "gputop is not installed there, and no Python is found"
        )
        with pytest.raises(SourceError, match="only nvidia-smi and /proc are read on this host"):
            ask(opened, Checks(), 20.0)
    until(lambda: not sshd.processes(host), within=2)
    assert sshd.files(host) == before
    topo, doctor = (gputop_on("old", command) for command in ("topo", "doctor"))
    assert (topo.returncode, topo.stdout) == (1, "")
    assert topo.stderr == f"gputop: old: {REFUSED}\n"
    assert "driver: 580.95.05" in doctor.stdout
    assert "because of the card or the driver" not in doctor.stdout
    assert "The driver reports no XIDs" not in doctor.stdout


def gputop_on(host: str, command: str) -> subprocess.CompletedProcess[str]:
    """What a command says of a host."""
    words = [sys.executable, "-m", "gputop", command, "-H", host]
    return subprocess.run(words, capture_output=True, text=True, timeout=40, check=False)


@pytest.mark.system
def test_an_nvidia_smi_that_fails(sshd: Sshd, tools: str) -> None:
    host = sshd.host("driverless", {}, path=tools)
    assert "nvidia-smi has ended there: Failed to initialize NVML" in str(why_not(host))


@pytest.mark.system
def test_it_ends_where_its_reader_is_silent(tools: str, kept: MachineFactory) -> None:
    """As after the network was cut, which nobody there is told of."""
    with subprocess.Popen(
        ["/bin/sh", "-c", smi_text(0.1, lease=2).decode()], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**kept("h200x8").env, "PATH": tools}, start_new_session=True,
    ) as program:  # fmt: skip
        assert program.stdin
        assert program.stdout
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            os.write(program.stdin.fileno(), b"ping\n")
            if select.select([program.stdout], [], [], 0.5)[0]:
                os.read(program.stdout.fileno(), 1 << 20)
        assert program.poll() is None
        program.stdout.read()
        assert program.wait(5) == -signal.SIGTERM
        until(lambda: not group(program.pid), within=2)
