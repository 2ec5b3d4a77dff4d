"""-H: which hosts are meant, and that every command asks all of them, down or not."""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gputop.api import free
from gputop.cli import main
from gputop.commands.free import line_for, shell_line
from gputop.commands.shared.hosts import answers_of, timeout_of
from gputop.errors import SourceError, UsageError
from gputop.model.doctor.check import frame_checks
from gputop.parser import parse
from gputop.sources.feed import NO_THREAD
from gputop.sources.follow_hosts import HostFollower
from gputop.sources.many import ask_hosts, first_fitting
from gputop.sources.ssh.names import HostName, parse_hosts
from tests.builders import frame
from tests.conftest import MachineFactory, needs_everybody
from tests.limits import trouble_within
from tests.sshd import Sshd, sshd
from tests.terminal import Terminal

pytestmark = pytest.mark.system

__all__ = ["sshd"]

Capture = pytest.CaptureFixture[str]
GPUTOP = [sys.executable, "-m", "gputop"]
GROUPS = {
    "lab": ("node[01-03]", "bob@gpu1:2222"),
    "all": ("@lab", "extra"),
    "job": ("@slurm",),
    "loop": ("@round",),
    "round": ("@loop",),
}
SLURM = {"SLURM_JOB_NODELIST": "gpu[1-2,09],login"}
NAMES = "alpha, beta  # the first two\n\n@lab\n"


def parsed(*words: str, environ: Mapping[str, str] = SLURM) -> tuple[HostName, ...]:
    return parse_hosts(words, GROUPS, environ, io.StringIO(NAMES))


# Names


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("a,b c", "a b c"),
        ("a b,a A", "a b"),
        ("bob@a a bob@a:22 a:22", "bob@a a bob@a:22 a:22"),
        ("node[01-03,10]", "node01 node02 node03 node10"),
        ("node[9-11] n[0-10/5]", "node9 node10 node11 n0 n5 n10"),
        ("r[1-2]n[1,3].lab:22", "r1n1.lab:22 r1n3.lab:22 r2n1.lab:22 r2n3.lab:22"),
        ("a[1,2],b", "a1 a2 b"),
        ("@lab", "node01 node02 node03 bob@gpu1:2222"),
        ("@all node02", "node01 node02 node03 bob@gpu1:2222 extra"),
        ("@slurm @job", "gpu1 gpu2 gpu09 login"),
        ("- x", "alpha beta node01 node02 node03 bob@gpu1:2222 x"),
        ("x,- -", "x alpha beta node01 node02 node03 bob@gpu1:2222"),
        ("::1 [::1]:22 fe80::1%eth0", "::1 [::1]:22 fe80::1%eth0"),
    ],
)
def test_names(words: str, asked: str) -> None:
    assert " ".join(host.requested_name for host in parsed(*words.split())) == asked


def test_what_ssh_gets() -> None:
    assert parsed("bob@node3:2222") == (HostName("bob@node3:2222", "bob@node3", 2222),)
    assert parsed("[fe80::1%eth0]:22") == (HostName("[fe80::1%eth0]:22", "fe80::1%eth0", 22),)
    assert parsed("LAB\\ann@b.org@h") == (HostName("LAB\\ann@b.org@h", "LAB\\ann@b.org@h", None),)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("-oProxyCommand=x", "begins with a dash"),
        ("a,-oProxyCommand=x", "begins with a dash"),
        ("bob@-x", "begins with a dash"),
        ("a b", "has blanks"),
        ("a\u00a0b", "has blanks"),
        ("a\x1b[2J", "cannot be seen"),
        ("a\u202eb", "cannot be seen"),
        ("", "is empty"),
        ("a,,b", "is empty"),
        ("a;reboot", "is not .user@.host"),
        ("$(reboot)", "is not .user@.host"),
        ("a/b", "is not .user@.host"),
        ("a'", "is not .user@.host"),
        ("a:0", "ports go from 1 to 65535"),
        ("a:70000", "ports go from 1 to 65535"),
        ("n[3-1]", "goes down"),
        ("n[1-]", "has no range"),
        ("n[1-2", "is not .user@.host"),
        ("n[a-b]", "is not .user@.host"),
        ("n[0-999999999]", "more than 1000 hosts"),
        ("n[1-40]m[1-40]", "more than 1000 hosts"),
        ("n" + "[1]" * 2000, "has more than 10 ranges"),
        ("n" * 400, "has more than 320 characters"),
        ("@lib", "no group @lib in .groups. of the settings; there is @lab, .*, @slurm"),
        ("@loop", "group @loop of the settings is part of itself"),
    ],
)
def test_what_names_no_host(word: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        parsed(word)
    assert str(raised.value).isprintable()


def test_what_a_list_of_hosts_may_cost() -> None:
    """Half a million commas, groups that name others eight times, and groups in groups."""
    wide = {f"g{n}": [f"@g{n + 1}"] * 8 for n in range(9)} | {"g9": []}
    deep = {f"g{n}": [f"@g{n + 1}"] for n in range(3000)}
    for words, groups, error in (
        ("a," * (1 << 19), {}, "more than 1000 hosts"),
        ("@g0", wide, "more than 10000 words"),
        ("@g0", deep, "is nested too deeply"),
    ):

        def parse(words: str = words, groups: dict[str, list[str]] = groups) -> None:
            parse_hosts([words], groups, {}, None)

        assert error in trouble_within(parse)


def test_there_may_be_no_slurm_job_and_no_standard_input() -> None:
    with pytest.raises(UsageError, match="this is not a Slurm job"):
        parsed("@slurm", environ={})
    with pytest.raises(UsageError, match="standard input is closed"):
        parse_hosts(["-"], {}, {}, None)
    with pytest.raises(UsageError, match="-H names no host"):
        parse_hosts(["-"], {}, {}, io.StringIO("# none\n"))
    with pytest.raises(UsageError, match="no text in utf-8"):
        parse_hosts(["-"], {}, {}, io.TextIOWrapper(io.BytesIO(b"n\xf6de1\n"), "utf-8"))


def test_a_line_for_a_shell_has_nothing_in_it_that_a_remote_chose() -> None:
    line = shell_line(HostName("bob@n1:22", "bob@n1", 22), "GPU-1,GPU-2")
    *words, remote = shlex.split(line)
    assert words[-4:] == ["-p", "22", "--", "bob@n1"]
    order = "CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert remote == f"exec env {order} CUDA_VISIBLE_DEVICES=GPU-1,GPU-2 $SHELL -l"
    for value in ("$(reboot)", "GPU-1;reboot", "GPU-1 x", "", "GPU-\n1", "`x`", "a,,b"):
        with pytest.raises(SourceError, match="which is not a UUID"):
            line_for("uuid", HostName("n1", "n1", None), value)


# The commands, on an invented fleet


def gputop(capfd: Capture, *words: str) -> tuple[int, str, str]:
    status = main(["--demo", *words])
    return status, *capfd.readouterr()


DOWN = "gputop: down: ssh: connect to host down port 22: Connection refused\n"


@pytest.mark.parametrize("words", ["--once", "topo", "map 0,1"])
def test_text_of_each_with_its_name_on_top(words: str, capfd: Capture) -> None:
    status, text, errors = gputop(capfd, "-H", "node1,down", "-H", "node2", *words.split())
    assert (status, errors) == (1, DOWN)
    [one, two] = [text.index(f"node{k}") for k in (1, 2)]
    line, begin = text.count("\n", 0, one), text.rindex("\n", 0, two)
    assert (line, text[begin - 1 : begin]) == (0, "\n")


@pytest.mark.parametrize("words", ["--json", "topo --json", "map 0,1 --json", "doctor --json"])
def test_a_line_of_json_for_each(words: str, capfd: Capture) -> None:
    status, text, errors = gputop(capfd, "-H", "node[1-2],down,node1", *words.split())
    lines = [json.loads(line) for line in text.splitlines()]
    hosts = [
        line["host"]["requested_name"] if words == "--json" else line["host"] for line in lines
    ]
    assert (status, errors, sorted(hosts)) == (1, DOWN, ["node1", "node2"])


def test_doctor_says_once_what_most_have(capfd: Capture) -> None:
    status, text, errors = gputop(capfd, "-H", "node[1-3],down", "doctor")
    most, others = text.split("\n\nand different:\n")
    assert (status, errors) == (1, DOWN)
    assert most.startswith("most of 3 hosts:\nok       driver: ")
    assert "\nok       GPUs: 8 x H200\n" in most
    assert "\nok       GPUs: 4 x H200\n         on node2\n" in others
    assert others.startswith("error    GPU 6: ")
    assert others.endswith("\n\n1 error\n")


def test_the_first_host_that_has_enough(capfd: Capture) -> None:
    quick = ("--window", "0.2")
    hosts = ("-H", "down,node2,node1,node5")
    status, text, errors = gputop(capfd, "free", *hosts, "-n", "4", *quick)
    order = "gputop: node1: counted by PCI bus id: set CUDA_DEVICE_ORDER=PCI_BUS_ID, too\n"
    assert (status, errors) == (0, DOWN + order)
    host, value = text.split()
    assert (host, len(value.split(","))) == ("node1", 4)
    status, text, errors = gputop(capfd, "free", *hosts, "-n", "9", *quick, "--json")
    assert status == 1
    answer = json.loads(text)
    assert (answer["host"], answer["value"]) == (None, None)
    assert list(answer["refused"][0]) == ["host", "gpu", "uuid", "pci_bus_id", "reason"]
    assert errors.splitlines()[1:] == [
        "gputop: node2: 0 free, 9 requested",
        "gputop: node1: 5 free, 9 requested",
        "gputop: node5: 8 free, 9 requested",
        "gputop: no host has enough GPUs: 9 requested",
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-H a config", "-H is not an option of gputop config"),
        ("-H a help", "-H is not an option of gputop help"),
        ("free --format ssh", "--format ssh needs -H"),
        ("free -H a --format export", "--format export is for this shell"),
        ("map --pid 1 -H a,b", "a PID belongs to one machine"),
        ("map 0 -H a --inventory x", "--inventory cannot be used with -H"),
        ("doctor -H a --report x", "--report cannot be used with -H"),
        ("--hosts /dev/null --json", "'/dev/null' names no host"),
        ("--hosts /nowhere --json", "'/nowhere' cannot be read: No such file"),
        ("-H @lab --json", "no group @lab in [groups] of the settings; there is @slurm"),
    ],
)
def test_usage(words: str, error: str, capfd: Capture) -> None:
    status, text, errors = gputop(capfd, *words.split())
    assert (status, text) == (2, "")
    assert errors.startswith(f"gputop: {error}")
    assert errors.count("\n") == 1


def test_groups_and_files(capfd: Capture, tmp_path: Path) -> None:
    settings = Path(os.environ["XDG_CONFIG_HOME"], "gputop", "config.toml")
    settings.parent.mkdir(parents=True)
    groups = '[groups]\nlab = ["node[1-2]", "@more"]\nmore = ["node4"]\n'
    settings.write_text(groups)
    (tmp_path / "hosts").write_text("node5\nnode1 # again\n")
    status, text, _ = gputop(capfd, "-H", "@lab", "--hosts", f"{tmp_path}/hosts", "--json")
    hosts = [json.loads(line)["host"]["requested_name"] for line in text.splitlines()]
    assert (status, sorted(hosts)) == (0, ["node1", "node2", "node4", "node5"])
    assert main(["config"]) == 0
    assert 'lab = ["node[1-2]", "@more"]' in capfd.readouterr().out
    assert main(["config", "--check"]) == 0
    settings.write_text(f"intervall = 2\n{groups}")
    status, text, errors = gputop(capfd, "-H", "@more", "topo")
    assert (status, "\nnode4:\n" in text, errors) == (0, True, "")
    with pytest.raises(UsageError, match="'@lab' names 3 hosts: give one"):
        free(host="@lab")
    settings.write_text(f"{groups}all = 5\n")
    status, _, errors = gputop(capfd, "-H", "@more", "topo")
    assert (status, errors.count("\n")) == (2, 2)
    assert errors.startswith(f"gputop: {settings}, line 1: groups: Expected `array`, got `int`;")
    with pytest.raises(UsageError, match="line 1: groups: Expected"):
        free(host="@more")
    settings.write_text('[groups]\nlab = ["node[2-1]"]\n')
    assert main(["config", "--check"]) == 2
    assert f"{settings}: groups.lab: host 'node[2-1]' has a range" in capfd.readouterr().err


def test_names_from_standard_input_leave_the_keys_to_the_terminal() -> None:
    script = f"echo node1 | {shlex.join(GPUTOP)} --demo -H -"
    with Terminal(["sh", "-c", script], cols=120, rows=40, env=dict(os.environ)) as terminal:
        terminal.wait_for(" Processes ")
        terminal.send(b"q")
        assert terminal.exit_code() == 0


def test_doctor_says_nothing_of_a_cuda_that_is_not_known() -> None:
    """As where nvidia-smi is all that there is."""
    assert next(frame_checks([frame()])).text == "version not known"


# Through a real sshd


@needs_everybody
def test_every_command_over_ssh(
    sshd: Sshd, kept: MachineFactory, capfd: Capture, tmp_path: Path
) -> None:
    here = kept("h200x8")
    sshd.host("h1", here.env, SHELL="/bin/sh")
    sshd.host("down", more="Port 1")
    assert main(["-H", "h1,down", "--json", "--timeout=60"]) == 1
    text, errors = capfd.readouterr()
    [seen] = map(json.loads, text.splitlines())
    assert (seen["host"]["requested_name"], len(seen["gpus"])) == ("h1", 8)
    assert errors.startswith("gputop: down: connect to host 127.0.0.1 port 1: ")
    pid = here.pids["train"]
    assert main(["map", "--pid", str(pid), "--json", "-H", "h1", "--timeout=60"]) == 0
    assert json.loads(capfd.readouterr().out)["process"]["evidence"] == "confirmed"
    assert main(["doctor", "-H", "h1,down", "--json", "--timeout=60"]) == 1
    [connection, *_] = json.loads(capfd.readouterr().out)["checks"]
    assert connection["code"] == "connection"
    assert connection["text"].startswith("the gputop that is installed there answers (")
    assert main(["free", "-H", "h1", "--window=0.2", "--format=ssh", "--timeout=60"]) == 0
    line = capfd.readouterr().out
    done = subprocess.run(
        ["sh", "-c", line], input="echo =$CUDA_VISIBLE_DEVICES=$CUDA_DEVICE_ORDER=\n",
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "=2=PCI_BUS_ID=" in done.stdout, done


def test_a_host_that_hangs_holds_back_no_other(
    sshd: Sshd, kept: MachineFactory, capfd: Capture
) -> None:
    """JSON is there as it comes; who is missing is named at the end, by free as well."""
    sshd.host("stuck", script="exec sleep 100")
    sshd.host("quick", kept("h200x8").env)
    command = [*GPUTOP, "-H", "stuck,quick", "--json"]
    with subprocess.Popen([*command, "--timeout", "600"], stdout=subprocess.PIPE) as program:
        assert program.stdout
        assert json.loads(program.stdout.readline())["host"]["requested_name"] == "quick"
        assert program.poll() is None
        program.kill()
    assert main(["free", "-H", "stuck,quick", "--window=0.2", "--timeout=600", "--wait"]) == 0
    text, errors = capfd.readouterr()
    assert text.startswith("quick ")
    assert errors.startswith("gputop: stuck: no answer yet when quick had enough\n")


def test_the_first_named_of_those_that_answer_together() -> None:
    """And no host that is named behind one that fits is waited for."""
    a, b, c, d = hosts = tuple(HostName(name, name, None) for name in "abcd")
    b_asked, d_answered, never = threading.Event(), threading.Event(), threading.Event()

    def ask(host: HostName) -> bool:
        if host == a:
            raise SourceError("no route")
        if host == b:
            b_asked.set()
            d_answered.wait()
        elif host == c:
            never.wait()
        else:
            b_asked.wait()
        return True

    def fits(answer: bool) -> bool:
        d_answered.set()
        return answer

    chosen, answers = first_fitting(hosts, ask, fits, math.inf, 60)
    assert (chosen, str(answers[a]), c in answers) == (b, "no route", False)
    chosen, answers = first_fitting((c, d), ask, fits, math.inf, 0)
    assert (chosen, str(answers[c])) == (d, "no answer yet when d had enough")
    chosen, answers = first_fitting((c, d), ask, lambda _: False, 0.1)
    assert (chosen, str(answers[c])) == (None, "no complete answer within 0.1 s")
    never.set()


def test_a_signal_at_the_end_of_the_wait() -> None:
    """Its handler returns when the time is over: the wait is over, too."""
    never, main_thread = threading.Event(), threading.main_thread().ident
    assert main_thread is not None
    end = time.monotonic() + 0.4

    def handle(number: int, frame: object) -> None:
        while time.monotonic() < end:
            pass

    before = signal.signal(signal.SIGUSR1, handle)
    sent = threading.Timer(0.1, signal.pthread_kill, (main_thread, signal.SIGUSR1))
    given_up = threading.Timer(10, never.set)
    for timer in (sent, given_up):
        timer.start()
    assert list(ask_hosts(parsed("node1"), lambda _: never.wait(), 0.3)) == []
    for timer in (sent, given_up):
        timer.cancel()
        timer.join()  # it may be past its wait: then its signal still comes
    never.set()
    signal.signal(signal.SIGUSR1, before)


def test_hosts_for_which_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this user has as many as he may, those that have one are closed as well."""
    hosts, start, started = parsed("a,b,c"), threading.Thread.start, list[threading.Thread]()

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    told = {host.requested_name: str(answer) for host, answer in ask_hosts(hosts, lambda _: "yes")}
    assert (told["a"], told["b"], told["c"]) == ("yes", NO_THREAD, NO_THREAD)
    started.clear()
    with pytest.raises(SourceError, match="no thread can be started"):
        HostFollower(hosts, 1.0, demo=True)
    assert not started[0].is_alive()


def test_hosts_are_named_at_the_end_in_their_order(capfd: Capture) -> None:
    hosts = tuple(HostName(name, name, None) for name in ("a", "b", "c", "d"))
    has_come = {host.requested_name: threading.Event() for host in hosts}

    def ask(host: HostName | None) -> str:
        assert host is not None
        follows = {"a": "c", "c": "d", "d": "b"}.get(host.requested_name)
        assert follows is None or has_come[follows].wait(60)
        has_come[host.requested_name].set()
        if host.requested_name in ("a", "c"):
            raise SourceError("no route")
        return host.requested_name

    answers = [answer for _, answer in answers_of(hosts, ask, ordered=False)]
    assert answers == ["b", "d"]
    assert capfd.readouterr().err == "gputop: a: no route\ngputop: c: no route\n"
    assert timeout_of(parse(["--json"])) == 5


@pytest.mark.long
def test_a_host_that_is_lost_comes_back_in_watch(sshd: Sshd, kept: MachineFactory) -> None:
    """What is wrong is said once, and a login is not tried again and again."""
    here = kept("h200x8")
    sshd.host("w1", here.env)
    sshd.host("refused", key="no_such_key")
    command = [*GPUTOP, "-H", "w1,refused", "--json", "--watch", "-i", "0.2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as program:
        assert program.stdout
        assert program.stderr
        try:
            assert json.loads(program.stdout.readline())["host"]["requested_name"] == "w1"
            assert program.stderr.readline().startswith("gputop: refused: login wanted: ")
            os.kill(sshd.sessions()[-1], signal.SIGKILL)
            assert program.stderr.readline().startswith("gputop: w1: ")
            lost = time.time()
            while json.loads(program.stdout.readline())["time"] < lost:
                pass
        finally:
            program.kill()
