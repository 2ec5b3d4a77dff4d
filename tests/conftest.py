"""Fixtures for all tests."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import hypothesis
import pytest

from gputop.agent.process.namespaces import NUMBERING, in_first_namespace
from tests.driver import BuildError, Machine, build
from tests.patience import Deadline, count_waits

MachineFactory = Callable[..., Machine]

_OF_A_TERMINAL = (
    "COLORFGBG", "KONSOLE_VERSION", "LC_TERMINAL", "NO_COLOR", "STY", "TERM_PROGRAM", "TMUX",
    "VTE_VERSION",
)  # fmt: skip
"""Variables by which terminals and multiplexers say what they are."""
NESTED = not in_first_namespace()
"""Whether the tests run in a PID namespace below the first, as in a container."""
OURSELVES = (
    "it is process 1, and everything here ends with it"
    if os.getpid() == 1
    else "gputop runs under it"
)
"""What gputop says of the program that runs the tests, which may be the first of a container."""


def _user() -> str:
    """As gputop names whoever runs the tests: the number of one who has no name, as in containers.
    LOGNAME and USER may be those of another one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


ME = _user()
needs_everybody = pytest.mark.skipif(
    NESTED, reason="needs the first PID namespace: tests/agent/test_inside.py is about containers"
)
"""Of what sees every process of the machine: elsewhere no GPU is known to be free."""
_NO_ROOT = "needs root, and unshare: apt-get install -y util-linux"
_IS_ROOT = os.geteuid() == 0 and shutil.which("unshare") is not None
needs_root = pytest.mark.skipif(not _IS_ROOT, reason=_NO_ROOT)
"""Of what mounts, makes device nodes and namespaces, and becomes another user."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let whole screens be drawn anew, after a change that is meant; say where the report of
    tests/gpu goes."""
    parser.addoption(
        "--snapshot-update", action="store_true", help="rewrite tests/tui/snapshots/*.txt"
    )
    parser.addoption(
        "--gpu-report", metavar="FOLDER", default=".gputop-gpu",
        help="where `-m gpu` writes its report (default: %(default)s)",
    )  # fmt: skip


def on_card(config: pytest.Config) -> bool:
    """Return whether these are the tests of tests/gpu, for the GPUs of this machine."""
    return bool(config.option.markexpr == "gpu")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the tests for GPUs one after another: they measure, and share few GPUs."""
    if on_card(config):
        config.option.numprocesses = 0


def pytest_configure(config: pytest.Config) -> None:
    """Let the programs that tests start have the default signals, and in a container libcuda: it
    shows there that they may be on a GPU.

    In the background of a script SIGINT and SIGQUIT are ignored, under nohup SIGHUP; programs
    inherit that. What is handled they do not: with a handler that does nothing pytest goes on
    ignoring it, and they do not. SIGPIPE and SIGXFSZ are Python's own, and subprocess sees to them.

    And let them keep their bytecode, as programs that are installed do: compiling gputop anew takes
    each of them longer than what it does.

    And have tmux and xterm start a shell that there is: that of a user like nobody is nologin. And
    have programs find a terminal's own kind, where a runner of jobs says that it is dumb, and
    nothing of the terminal in which the tests are run.
    """
    # A busy machine is no fault, and what is tried is the same in every run.
    hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
    hypothesis.settings.register_profile("random", deadline=None)
    hypothesis.settings.load_profile(config.getoption("--hypothesis-profile") or "suite")
    os.environ["SHELL"] = "/bin/sh"
    if os.environ.get("TERM") == "dumb":
        del os.environ["TERM"]
    for name in ("PYTHONDONTWRITEBYTECODE", *_OF_A_TERMINAL):
        os.environ.pop(name, None)
    if NESTED and not on_card(config):
        with suppress(BuildError):  # each test that needs it will say so
            os.environ.update(build.loading_cuda())
            ctypes.CDLL(str(build.cuda()))
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    sys.addaudithook(_note_processes)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile the tests of a fresh clone, half in each of two processes, before there are workers:
    all of them would compile every test at the same time."""
    here = Path(__file__).parent
    if any(here.glob("__pycache__/test_*.pyc")):
        return
    parts = sorted(path for path in here.iterdir() if path.is_dir() or path.match("test_*.py"))
    collect = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-n0"]
    halves = [
        subprocess.Popen([*collect, *half], cwd=here.parent, stdout=subprocess.DEVNULL)
        for half in (parts[::2], parts[1::2])
    ]
    for half in halves:
        half.wait()  # a test that cannot be collected is reported by the workers


_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen", "tests.fork"}
_started: list[tuple[object, ...]] = []
"""What the present test has started: the name of Python's audit event, and what ran."""


def _note_processes(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        _started.append((event, *arguments[:2]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare the driver, if a test needs one, before the time of the first of them runs."""
    if any("machine" in getattr(item, "fixturenames", ()) for item in session.items):
        with suppress(BuildError):  # each of them will say so
            build.prepare()
    _started.clear()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer() -> Iterator[None]:
    """Let the alarm of a test that hangs ring until it is heard: where it finds a task of Textual's
    at work it ends that task alone, and the test waits for it for ever. A test that had to wait for
    a core has more time, and the alarm counts once a second what it did."""
    done = yield
    seconds, _ = signal.getitimer(signal.ITIMER_REAL)
    if seconds:
        fail, deadline = signal.getsignal(signal.SIGALRM), Deadline(seconds)

        def ring(number: int, frame: FrameType | None) -> None:
            count_waits()
            left = deadline.left()
            if left > 0:
                signal.setitimer(signal.ITIMER_REAL, min(max(left, 0.1), 1.0))
            elif callable(fail):
                signal.setitimer(signal.ITIMER_REAL, 20.0)  # with time to clean up
                fail(number, frame)

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, min(seconds, 1.0))
    return done


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let it be silent as soon as the test has failed: it would end pytest at its report.

    And name no place for a test that is skipped: the summary has a line for each of them, and would
    hide the failures behind many lines of one reason.
    """
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        signal.setitimer(signal.ITIMER_REAL, 0)
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = ("tests", None, report.longrepr[2])  # type: ignore[assignment]
    return report


@pytest.fixture(autouse=True)
def is_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts a process and is not marked as a system test."""
    yield
    started = list(_started)
    _started.clear()
    if started and request.node.get_closest_marker("system") is None:
        pytest.fail(f"starts a process, and is not marked with pytest.mark.system: {started[0]}")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither read nor write the settings and logs of whoever runs the tests."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("GPUTOP_LOCKS", str(tmp_path / "locks"))


@pytest.fixture(autouse=True)
def newest_driver() -> None:
    """What parts of the agent that a test uses by themselves take the driver for."""
    NUMBERING.opened("580.95.05")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[MachineFactory]:
    """Make simulated machines: `machine("h200x8")`; they end with the test."""
    with ExitStack() as stack:

        def make(scenario: str | dict[str, Any], **options: Any) -> Machine:
            return stack.enter_context(Machine(scenario, tmp_path, **options))

        yield make


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineFactory]:
    """Make machines that end with the file, for tests that change nothing on them."""
    folder = tmp_path_factory.mktemp("kept")
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "STATE")}
    with ExitStack() as stack:

        def make(scenario: str | dict[str, Any], **options: Any) -> Machine:
            made = stack.enter_context(Machine(scenario, folder, **options))
            made.env.update(own, XDG_RUNTIME_DIR=str(folder), GPUTOP_LOCKS=str(folder / "locks"))
            return made

        yield make


def rest_long(names: str | tuple[str, ...], *cases: Any, **options: Any) -> pytest.MarkDecorator:
    """`parametrize` with cases of one kind: the first is in the suite, the others are `long`."""
    is_single = isinstance(names, str) and "," not in names
    rest = []
    for case in cases[1:]:
        if not isinstance(case, type(pytest.param())):
            case = pytest.param(*((case,) if is_single else case))
        rest.append(case._replace(marks=[*case.marks, pytest.mark.long]))
    return pytest.mark.parametrize(names, [*cases[:1], *rest], **options)


def needed(program: str, package: str) -> str:
    """The path of a program of the system. Without it the gate fails; elsewhere the test is
    skipped, and the tests in a pty of our own cover most of what it shows."""
    path = shutil.which(program)
    if path is None:
        lacking(f"not installed: apt-get install -y {package}")
    return path


def needed_module(name: str) -> None:
    """As `needed`, for a module of `.[dev]`: some of the long tests want more than the suite."""
    if find_spec(name) is None:
        lacking("not installed: pip install -e '.[dev]'")


def lacking(reason: str) -> NoReturn:
    """Skip a test for what is not there; under CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def require_root() -> None:
    """Skip one case of a test, or what uses a fixture, as `needs_root` does a test."""
    if not _IS_ROOT:
        pytest.skip(_NO_ROOT)


def needed_namespaces() -> tuple[str, ...]:
    """The options with which `unshare` makes a PID namespace: an ordinary user is root in a user
    namespace of his own. Without them the gate fails; elsewhere the test is skipped."""
    options = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    program = needed("unshare", "util-linux")
    wanted = [program, *options, "--mount", "--pid", "--fork", "--mount-proc", "true"]
    done = subprocess.run(wanted, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lacking(f"needs PID namespaces, which are not allowed here: {done.stderr.strip()}")
    return options


@pytest.fixture
def tmux() -> str:
    """The path of tmux."""
    return needed("tmux", "tmux")


def in_child(run: Callable[[], object], user: int) -> str:
    """What a call raises in a process of its own, which root has as another user; empty if
    nothing."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if user != os.getuid():
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            run()
        except Exception as error:  # noqa: BLE001 - the parent looks at it
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        words = pipe.read().decode()
    os.waitpid(child, 0)
    return words
