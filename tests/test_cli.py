"""The command line: what is printed where, exit codes, imports, hostile surroundings."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import gputop
from tests.agent.driving import Json, gone
from tests.conftest import MachineFactory, rest_long
from tests.driver import forked
from tests.driver.machine import REPOSITORY
from tests.patience import until

pytestmark = pytest.mark.system

GPUTOP = [sys.executable, "-m", "gputop"]
LINE = " ".join(map(shlex.quote, GPUTOP))
ONE_GPU: Json = {"gpu": {"name": "NVIDIA H200", "uuid": "GPU-0", "temperature": 40}}

Done = subprocess.CompletedProcess[str]


def run(*arguments: str, shell: str = "", env: dict[str, str] | None = None) -> Done:
    """gputop with these arguments, or a line of bash, in this environment."""
    environment = {**(os.environ if env is None else env), "PYTHONPATH": str(REPOSITORY)}
    environment.pop("PYTHONUNBUFFERED", None)  # what is left in a buffer is written at the exit
    command = ["bash", "-o", "pipefail", "-c", shell] if shell else [*GPUTOP, *arguments]
    return forked.run(command, environment)


def complaint(done: Done, code: int) -> str:
    """The one line on standard error of a run that ended with this code and printed nothing."""
    assert done.stdout == ""
    assert done.returncode == code
    assert done.stderr.startswith("gputop: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    return done.stderr


# Wrong arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--watch"], "--watch needs --json or --line"),
        (["--once", "--watch"], "--watch needs --json or --line"),
        (["--bad"], "--bad"),
        (["--json", "--once"], "--once cannot be used with --json"),
        (["-i"], "expected one argument"),
        (["-i", "-1"], "expected one argument"),
        (["--theme", "pink"], "unknown --theme 'pink': choose from auto, ansi-dark, "),
        (["frobnicate"], "unknown command 'frobnicate': choose from config, "),
        (["fre"], "unknown command 'fre': did you mean free? choose from config, "),
        (["\x1b[2J"], "unknown command '\\x1b[2J': choose from config, "),
        (["-u", "nobody-like-that"], "-u nobody-like-that: no such user here"),
        (["-u", ""], "argument 2 is empty"),
        (["-i", ""], "argument 2 is empty"),
        (["-u", "\x1b[2J"], "-u \ufffd[2J: no such user here"),
        (["-u"], "expected one argument"),
        (["-u", "me", "--once"], "-u cannot be used with --once"),
        (["-u", "me"], "-u needs the screen"),
        (["agent", "--bad"], "--bad"),
        *(
            (["-i", seconds], f"'{seconds}' is not a number of seconds from 0.1 to 60")
            for seconds in ("0", "0.05", "61", "1e9", "nan", "inf", "fast")
        ),
    ],
)
def test_usage_errors(arguments: list[str], words: str) -> None:
    assert words in complaint(run(*arguments), 2)


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith(f"gputop {gputop.__version__} (Python 3.")
    assert run("-V").stdout == run("--version").stdout
    assert "DEMO" in run("-1", "--demo").stdout
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(word in done.stdout for word in ("--once", "--json", "--watch", "exit status"))


# The driver cannot be read


@pytest.mark.parametrize("form", ["--once", "--json"])
@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("no-driver", "kernel driver is not loaded"),
        ("mismatch", "different versions"),
        ("no-permission", "no permission"),
        ("no-gpu", "finds no GPU"),
    ],
)
def test_problems(scenario: str, words: str, form: str, machine: MachineFactory) -> None:
    done = machine({"base": scenario, "processes": None}).run([*GPUTOP, form])
    assert words in complaint(done, 3)


def test_a_driver_that_does_not_answer(machine: MachineFactory) -> None:
    done = machine("init-hang").run([*GPUTOP, "--once"])
    assert "has not answered for 5 s" in complaint(done, 3)


def test_problems_are_frames_while_watching(machine: MachineFactory) -> None:
    here = machine({"base": "no-driver", "processes": None})
    done = run(shell=f"{LINE} --json --watch -i 0.1 | head -9", env=here.env)
    codes = [json.loads(line)["problem"]["code"] for line in done.stdout.splitlines()]
    # On a busy machine it takes longer to say so than the first frame waits.
    assert [code for code in codes if code != "not_answering"][:2] == ["driver_not_loaded"] * 2


@pytest.mark.parametrize("form", ["--once", "--json"])
def test_an_agent_that_cannot_start(form: str, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import no_such_module")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    done = subprocess.run(
        [*GPUTOP, form], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "the agent ended with status 1: ModuleNotFoundError" in complaint(done, 4)


# Streams


def test_not_a_terminal(machine: MachineFactory) -> None:
    """Then gputop alone is one look as text, without a word on a terminal that is not there."""
    here = machine(ONE_GPU)
    for line in (f"{LINE} | cat", f"{LINE} < /dev/null", f"{LINE} <&- | cat"):
        done = run(shell=line, env=here.env)
        assert done.returncode == 0
        assert "NVIDIA H200" in done.stdout
        assert done.stderr == ""


def test_a_terminal_that_can_show_nothing(machine: MachineFactory) -> None:
    here = machine(ONE_GPU)
    outer, inner = pty.openpty()
    with here.popen(
        GPUTOP, env={**here.env, "TERM": "dumb"}, stdin=inner, stdout=inner, stderr=inner
    ) as program:
        os.close(inner)
        assert program.wait(60) == 0
    text = os.read(outer, 100_000).decode()
    os.close(outer)
    assert "TERM=dumb cannot move the cursor; this is one snapshot as text" in text
    assert "NVIDIA H200" in text


def test_json_is_one_line(machine: MachineFactory) -> None:
    done = machine(ONE_GPU).run([*GPUTOP, "--json"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["gpus"][0]["temperature"] == 40


def test_a_reader_that_has_seen_enough(machine: MachineFactory) -> None:
    here = machine(ONE_GPU)
    line = f"{LINE} --json --watch -i 0.2 | head -2; echo ${{PIPESTATUS[0]}}"
    done = run(shell=line, env=here.env)
    *frames, status = done.stdout.splitlines()
    assert [json.loads(frame)["interval"] for frame in frames] == [0.2, 0.2]
    assert (status, done.stderr) == ("0", "")


@pytest.mark.parametrize("form", ["--once", "--json"])
def test_an_output_that_takes_nothing(form: str) -> None:
    done = run(shell=f"{LINE} --demo {form} >/dev/full")
    assert complaint(done, 1) == (
        "gputop: cannot write to standard output: No space left on device\n"
    )
    done = run(shell=f"{LINE} --demo {form} >&-")
    assert "standard output is closed" in complaint(done, 1)


def test_errors_stay_off_standard_output() -> None:
    done = run(shell=f"{LINE} --watch 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_an_option_that_is_cut_short_counts() -> None:
    assert json.loads(run("--json", "--dem").stdout)["demo"] is True
    done = run(shell=f"{LINE} --dem --json --wat -i 0.1 | head -2")
    assert len(done.stdout.splitlines()) == 2


def test_demo_json_says_that_it_is_one() -> None:
    done = run("--demo", "--json")
    assert json.loads(done.stdout)["demo"] is True
    done = run(shell=f"{LINE} --demo --json --watch -i 0.1 | head -3")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["demo"] for frame in frames] == [True] * 3
    assert frames[0]["time"] < frames[1]["time"] < frames[2]["time"]


@pytest.mark.parametrize("scenario", ["quick", "hangs"])
def test_ctrl_c(scenario: str, machine: MachineFactory) -> None:
    """To the process, at any moment; nothing stays behind."""
    here = machine(ONE_GPU)
    if scenario == "hangs":
        here.hang("nvmlDevice*", gpu=0, wakes=False)
    options: Json = {"stderr": subprocess.PIPE, "start_new_session": True}
    program = here.popen([*GPUTOP, "--json", "--watch", "-i", "0.2"], **options)
    assert program.stdout
    program.stdout.readline()
    agents = _children(program.pid)
    program.send_signal(signal.SIGINT)
    until(lambda: program.poll() is not None)
    _, errors = program.communicate()
    assert (program.returncode, errors) == (130, "")
    assert agents
    for agent in agents:
        until(partial(gone, agent))


@pytest.mark.parametrize("form", ["--once", "--json"])
def test_ctrl_c_while_the_driver_hangs(form: str, machine: MachineFactory) -> None:
    """The process that looks is held by the driver; nobody waits for it."""
    here = machine("init-hang")
    options: Json = {"stderr": subprocess.PIPE, "start_new_session": True}
    is_late = True
    while is_late:  # it gives the driver up after 5 s, before which the key has to be pressed
        begun = time.monotonic()
        program = here.popen([*GPUTOP, form], **options)
        until(lambda: bool(_children(program.pid)))  # noqa: B023 - called here alone
        agents = _children(program.pid)
        program.send_signal(signal.SIGINT)
        is_late = time.monotonic() - begun > 4
        _, errors = program.communicate()
    # If the signal interrupts an eval(), as when a NamedTuple is made, Python ends by it instead of
    # returning the status (unhandled_keyboard_interrupt in Python/pythonrun.c). A shell shows 130.
    assert errors == ""
    assert program.returncode in (130, -signal.SIGINT)
    for agent in agents:
        until(partial(gone, agent))


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


# Surroundings


TRAPS = ("psutil.py", "signal.py", "pynvml.py", "msgspec.py", "typing.py", "gputop/__init__.py")


def trapped(directory: Path) -> Path:
    """A directory of modules that leave a mark when they are imported."""
    for name in TRAPS:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(directory / 'MARK')!r}, 'a').write({name!r})\n")
    return directory


@pytest.mark.parametrize("form", ["--once", "--json"])
def test_a_hostile_working_directory(form: str, machine: MachineFactory, tmp_path: Path) -> None:
    """Nothing is imported from it, by gputop or its agent, when started as it is installed."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "gputop"
    script.write_text("import sys\nfrom gputop.cli import main\nsys.exit(main())\n")
    (tmp_path / "bin" / "gputop-origin.py").write_text("")
    (tmp_path / "trap").mkdir()
    here = machine(ONE_GPU)
    done = subprocess.run(
        [sys.executable, str(script), form],
        cwd=trapped(tmp_path / "trap"),
        env=here.env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "NVIDIA H200" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "trap" / "MARK").exists()


def test_where_the_agent_looks_for_modules(tmp_path: Path) -> None:
    """Neither in the working directory nor among gputop's own modules, by their short names."""
    (tmp_path / "pynvml.py").write_text(
        f"import sys\nopen({str(tmp_path / 'PATH')!r}, 'w').write('\\n'.join(sys.path))\n"
    )
    (tmp_path / "here").mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    command = [*GPUTOP, "--once"]
    subprocess.run(
        command,
        cwd=tmp_path / "here",
        env=environment,
        capture_output=True,
        timeout=300,
        check=False,
    )
    path = (tmp_path / "PATH").read_text().split("\n")
    assert path[0] == str(tmp_path)
    assert not {"", str(tmp_path / "here"), str(REPOSITORY / "gputop")} & set(path)


def test_the_trap_works(tmp_path: Path) -> None:
    """`python -m` looks into the working directory: Python's own rule."""
    subprocess.run(
        [sys.executable, "-c", "import psutil"], cwd=trapped(tmp_path), check=True, timeout=300
    )
    assert (tmp_path / "MARK").read_text() == "psutil.py"


HEAVY = {"textual", "rich", "pynvml", "psutil", "gputop.agent"}


@rest_long(
    ("arguments", "kept_out"),
    ("--once", {*HEAVY, "asyncio", "gputop.manual"}),
    ("help keys", {*HEAVY, "asyncio", "gputop.sources.local"}),
    ("--json", {*HEAVY, "gputop.export.table"}),
    ("--line", {*HEAVY, "asyncio", "gputop.export.table", "gputop.model.cuda"}),
    ("--demo --once", {*HEAVY, "asyncio"}),
    ("--demo --json", {*HEAVY, "asyncio"}),
    ("agent --once", {"gputop.tui", "gputop.export", "asyncio", "shutil", "dataclasses"}),
    ("--version", {"textual", "rich", "gputop.tui", "gputop.agent", "gputop.export"}),
)
def test_what_is_imported(arguments: str, kept_out: set[str], machine: MachineFactory) -> None:
    """A quick look starts quickly; python itself tells every import."""
    here = machine(ONE_GPU)
    here.env["PYTHONPROFILEIMPORTTIME"] = "1"
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    options: Json = {"stdin": pipe, "stdout": nowhere, "stderr": pipe}
    program = here.popen([*GPUTOP, *arguments.split()], **options)
    assert program.stderr
    errors = program.stderr.read()  # its input stays open: an agent ends with it
    assert program.wait(60) == 0
    imported = set(re.findall(r"\| *([\w.]+)$", errors, re.MULTILINE))
    assert "gputop.cli" in imported
    found = {name for name in imported if any(f"{name}.".startswith(f"{k}.") for k in kept_out)}
    assert not found
