"""What `gputop kill` takes for a name of a process, and that nothing else stands for one."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputop.agent.process.users import uid_of
from gputop.agent.requests import read_candidates
from gputop.cli import main
from gputop.commands.targets.selection import ProcessSelection, ProcessSelector, selection_of
from gputop.errors import GputopError, UsageError
from gputop.model.machine.frame import Frame
from gputop.model.machine.signals import Target
from gputop.parser import parse
from tests.agent.driving import Agent
from tests.builders import GIB, frame, gpu, process, typed
from tests.conftest import MachineFactory, needs_root, rest_long
from tests.driver import Machine, forked
from tests.test_kill import kill


def a_job_on_each(machine: MachineFactory) -> Machine:
    """Two GPUs, a job on each; the second has the PID of the first in its command line."""
    made = machine({
        "gpu": {"uuid": "GPU-{i}7777777", "memory": {"total": 80 * GIB, "used": GIB}},
        "gpus": 2,
        "processes": {
            "train": {"command": ["python", "train.py"], "on": {"gpu": 0, "used": 4 * GIB}},
        },
    })  # fmt: skip
    command = ["python", "eval.py", "--of", str(made.pids["train"])]
    made.spawn("eval", command, gpu=1, used=2 * GIB)
    return made


@pytest.fixture
def here(machine: MachineFactory) -> Machine:
    return a_job_on_each(machine)


EMPTY = [
    [""], [" "], ["\t"], ["\n"], [" \t\n "], ["\u00a0"], ["\u2003"], ["\u3000"], ["\u200b"],
    ["\ufeff"], ["\u00ad"], ["\u2800"], ["\u3164"], ["\ufe0f"], ["\x01"], ["\x7f"],
    ["--gpu", "0", ""], ["--gpu", "0", " "], ["--gpu", ""], ["--gpu", " "],
    ["--gpu", "0", "--gpu", ""],
    ["--gpu="], ["--user", ""], ["--user", " "], ["--user="], ["--user=", "train"], ["--us="],
    ["train.py", ""], ["", "train.py"], ["--user", "me", ""], ["--", ""], ["--signal", "", "train"],
    ["--gpu", "0", "--user", ""], ["--json", ""], ["--descendants", ""],
]  # fmt: skip
UNNAMED = [
    ["!"], ['""'], ['" "'], ['"\t"'], ['!""'], ["user:"], ["gpu:"], ["pid:"], ["cuda:"],
    ["container:"], ['user:""'], ['user:" "'], ["user: train"], ["!user:"], ["!gpu:"], ["mem>"],
    ["mem>G"], ["age>h"], ["mem"], ["gpu"], ["user"], ["pid"], ["GPU"], ["or"], ["train or"],
    ["or train"], ["train or "], [" or "], ["train or or eval"], ["train", "or"], ["or", "train"],
    ["!nosuchthing"], ["!train"], ["!user:root"], ["train or !eval"], ["!a", "!b"], ["!idle"],
    ["mem>=0"], ["mem>0"], ["mem>0G"], ["age>=0s"], ["cpu>=0.0"], ["rss>=0 age>0"], ["!mem>1T"],
    ["/"], ["."], ["-"], ["--", "-"], ["a"], ["py"], [".py"], ["/."], ["e or train"],
    ["train", "e"],
    ['"/"'], ['"."'], ["*"], ["%"], ["?"], ["~"], ["container:a"], ["container:-"],
    ["--gpu", "0,"], ["--gpu", ","], ["--gpu", "all"], ["--gpu", "*"], ["--gpu", "GPU-"],
    ["--gpu", "MIG-"], ["--gpu", "0-1"], ["--gpu", "-1"], ["--user", "*"], ["--user", ","],
    ["--user", "root,bob"], ["user:*"], ["user:roo"], ["--gpu", "0", "!gpu:9"],
    ["--gpu", "0", "!gpu:0,1"], ["--gpu", "0", "!user:nosuchuser"], ["--gpu", "0", "!pid:1,2"],
    ["gpu:GPU-"], ["gpu:gpu-"], ["gpu:GPU"], ["gpu:g"], ["train or gpu:GPU-"], ["train gpu:gpu-"],
    ["--user", "me", "!gpu:GPU-"], ["gpu:0,9"],
    ["user=root"], ["pid=1"], ["gpu=0"], ["--", "--user=me"], ["user==me"],
    ["--gpu", "1", "!user=me"],
]  # fmt: skip


THROUGH = [
    [""], ["--gpu", "0", " "], ["--user="], ["!train"], ["gpu:GPU-"], ["mem>=0"], ["or"], ["/"],
    ["--gpu", "0,"], ["--user", "*"],
]  # fmt: skip
"""A few go through the program."""


@pytest.mark.system
@rest_long("words", *THROUGH, ids=repr)
def test_what_names_nothing_ends_nothing(words: list[str], here: Machine) -> None:
    before = here.pids
    done = kill(here, "--yes", "--foreign", *words)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.startswith("gputop: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr[:-1].isprintable()
    assert here.pids == before


@pytest.fixture(scope="module")
def seen(kept: MachineFactory) -> Iterator[tuple[Machine, Frame]]:
    """Such a machine, and what its agent tells of it."""
    made = a_job_on_each(kept)
    with Agent(made) as agent:
        yield made, msgspec.convert(agent.line(), Frame)


def targets(frame: Frame, *words: str) -> tuple[Target, ...]:
    """What `gputop kill WORDS` means."""
    line = ["kill", "--yes", "--foreign", *words]
    options = parse(line)
    selection = selection_of(options, False)
    return meant_by(selection, frame)


def meant_by(selection: ProcessSelection, frame: Frame) -> tuple[Target, ...]:
    """What the agent's answer makes of a selection."""
    candidates = read_candidates(frame, ancestors=False)
    return ProcessSelector(
        frame, candidates, {name: uid_of(name) for name in selection.users}
    ).targets(selection)


def chosen_of(seen: tuple[Machine, Frame], *words: str) -> tuple[int, set[str]]:
    """As `meant`, without a program."""
    here, frame = seen
    names = {pid: name for name, pid in here.pids.items()}
    try:
        return 0, {names[target.process.pid] for target in targets(frame, *words)}
    except GputopError as error:
        return error.exit_code, set()


@pytest.mark.system
def test_what_names_nothing_means_nobody(seen: tuple[Machine, Frame]) -> None:
    _, frame = seen
    assert len(targets(frame, "--user", "me")) == 2
    for words in EMPTY + UNNAMED:
        with pytest.raises(UsageError) as raised:
            pytest.fail(f"{words} means {targets(frame, *words)}")
        assert raised.value.exit_code == 2, words


@pytest.mark.system
def test_a_pid_of_somebody_else_is_not_said_to_be_on_no_gpu(seen: tuple[Machine, Frame]) -> None:
    _, frame = seen
    pid, other = str(frame.processes[0].pid), ["--user", "+4294967290"]
    for more, why in (
        (other, "no process of --user on a GPU"),
        ([*other, "--gpu", "0"], "no process of --user on a GPU of --gpu"),
        (["--gpu", "1"], "not on a GPU of --gpu"),
    ):
        with pytest.raises(GputopError, match=f"process {pid} is {why}$"):
            targets(frame, pid, *more)


def meant(here: Machine, *words: str) -> tuple[int, set[str]]:
    """The status of a dry run, and the names of the processes that it would end."""
    done = kill(here, "--dry-run", *words)
    names = {pid: name for name, pid in here.pids.items()}
    assert done.stderr.count("\n") <= 1
    return done.returncode, {names[int(line.split()[0])] for line in done.stdout.splitlines()}


TRAIN = (0, {"train"})
BOTH = (0, {"train", "eval"})
WRONG: tuple[int, set[str]] = (2, set())
NOBODY: tuple[int, set[str]] = (1, set())


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["{0}"], TRAIN), (["{0} "], TRAIN), ([" {0}"], TRAIN), (["\t{0}\n"], TRAIN),
        (["{0}\u00a0"], TRAIN), (["00{0}"], TRAIN), (["{0}\r"], TRAIN), (["pid:{0}"], TRAIN),
        (["pid:00{0}"], TRAIN), (["{0} {1}"], BOTH), (["{0}\n{1}\n"], BOTH),
        (["{0}", "{1} "], BOTH),
        (["pid:{0} or pid:{1}"], BOTH), (["{0} 99999999"], NOBODY),
        (['"{0}"'], BOTH), (['"of {0}"'], (0, {"eval"})),
        (["{0} or 99999"], WRONG), (["{0} or pid:{1}"], WRONG), (["pid:{0} or {1}"], WRONG),
        (["train {0}"], WRONG), (["train", "{0}"], WRONG), (["pid {0}"], WRONG),
        (["!{0}"], WRONG), (["--gpu", "1", "!{0}"], WRONG), (["+{0}"], WRONG), (["{0},{1}"], WRONG),
        (["{0},"], WRONG), (["{0};"], WRONG), (["#{0}"], WRONG), (["{0}."], WRONG), (["%1"], WRONG),
        (["{0}-{1}"], WRONG), (["{0}\u200b"], WRONG), (["\ufeff{0}"], WRONG), (["-{0}"], WRONG),
        (["{hex}"], WRONG), (["{octal}"], WRONG), (["{0}e0"], WRONG), (["{0}.0"], WRONG),
        (["{arabic}"], WRONG), (["{wide}"], WRONG), (["\x1b[1m{0}\x1b[m"], WRONG),
        (["pid:{0},{1}"], WRONG), (["pid:{arabic}"], WRONG), (["pid:+{0}"], WRONG),
        (["pid:{hex}"], WRONG), (["--gpu", "1", "!pid:{0},{1}"], WRONG),
        (["--gpu", "1", "!pid:{1}"], NOBODY), (["--gpu", "1", "{0}"], NOBODY),
    ],
)  # fmt: skip
def test_digits_are_a_pid_or_nothing(
    words: list[str], expected: tuple[int, set[str]], seen: tuple[Machine, Frame]
) -> None:
    """The command line of `eval` holds the PID of `train`, as a text that is searched for would."""
    here, _ = seen
    first, second = here.pids["train"], here.pids["eval"]
    forms = {
        "hex": hex(first),
        "octal": oct(first),
        "arabic": "".join(chr(0x660 + int(digit)) for digit in str(first)),
        "wide": "".join(chr(0xFF10 + int(digit)) for digit in str(first)),
    }
    assert chosen_of(seen, *(word.format(first, second, **forms) for word in words)) == expected


@pytest.mark.system
def test_a_number_goes_through_the_program_as_a_pid(here: Machine) -> None:
    first, second = here.pids["train"], here.pids["eval"]
    assert meant(here, f"pid:{first} or pid:{second}") == BOTH
    assert meant(here, f"train {first}") == WRONG


@pytest.mark.system
def test_a_beginning_that_several_gpus_have_is_none_of_them(here: Machine) -> None:
    here.update(lambda scenario: [
        gpu.update(uuid=f"GPU-ab{gpu['index']}") for gpu in scenario["gpus"]
    ])  # fmt: skip
    assert meant(here, "train or gpu:ab") == WRONG
    with Agent(here) as agent:
        seen = here, msgspec.convert(agent.line(), Frame)
    for words in (["gpu:a"], ["gpu:GPU-ab"], ["--user", "me", "!gpu:ab"], ["train or gpu:ab"]):
        assert chosen_of(seen, *words) == WRONG, words
    assert chosen_of(seen, "gpu:ab1") == (0, {"eval"})
    assert chosen_of(seen, "--user", "me", "!gpu:GPU-ab1") == TRAIN


@pytest.mark.system
def test_a_sign_of_equality_is_searched_for_in_quotes(here: Machine) -> None:
    here.spawn("serve", ["python", "serve.py", "--user=bob"], used=GIB)
    assert meant(here, "user=bob") == WRONG
    assert meant(here, '"user=bob"') == (0, {"serve"})


NAMED: dict[tuple[str, ...], tuple[int, set[str]]] = {
    ("train.py",): TRAIN,
    ("python eval",): (0, {"eval"}),
    ("train or eval.py",): BOTH,
    ("train", "or", "eval.py"): BOTH,
    ("--gpu", "0"): TRAIN,
    ("--gpu", "0,1"): BOTH,
    ("gpu0",): TRAIN,
    ("gpu:1 !eval",): NOBODY,
    ("--user", "me", "!eval"): TRAIN,
    ("--gpu", "0", "!nosuchthing"): TRAIN,
    ("user:me",): BOTH,
    ("mem>3G",): TRAIN,
    ("mem>=0 train",): TRAIN,
    ('"py"',): BOTH,
}


@pytest.mark.system
@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_what_is_named_is_meant(words: tuple[str, ...], seen: tuple[Machine, Frame]) -> None:
    assert chosen_of(seen, *words) == NAMED[words]


@pytest.mark.system
def test_what_is_named_for_the_program_is_meant(here: Machine) -> None:
    for words in list(NAMED)[::7]:
        assert meant(here, *words) == NAMED[words], words


EMPTY_LINES = [
    "kill '' --yes", "free ''", "free --exclude ''", "free --exclude 0,", "free --exclude=",
    "free --exclude ' '", "map ''", "map ' '", "map --order ''", "topo ''", "doctor --python ''",
    "config ''", "-u ''", "--user=", "-u ' '", "--demo -u ''", "--once ''", "--json -u ''",
]  # fmt: skip


@pytest.mark.parametrize("line", EMPTY_LINES)
def test_an_empty_argument_is_an_error_of_every_command(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(shlex.split(line))
    out, errors = capsys.readouterr()
    assert (status, out) == (2, "")
    assert "empty" in errors
    assert errors.count("\n") == 1


@pytest.mark.system
@pytest.mark.parametrize("line", EMPTY_LINES[::6])
def test_an_empty_argument_of_the_program(line: str) -> None:
    done = forked.run([sys.executable, "-m", "gputop", *shlex.split(line)])
    assert (done.returncode, done.stdout) == (2, "")
    assert "empty" in done.stderr
    assert done.stderr.count("\n") == 1


# Users


def other(uid: int, command: str) -> subprocess.Popen[bytes]:
    """A process of a user that need not have a name."""
    script = f"import os, sys; os.setuid({uid}); print(flush=True); sys.stdin.read()"
    program = subprocess.Popen(
        [sys.executable, "-c", script, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdout
    program.stdout.readline()
    return program


CHOOSE = """
import json, sys
from gputop.errors import GputopError
from gputop.sources.local import LocalSource
from tests.test_kill_names import targets
source = LocalSource(1.0)
frame = next(iter(source.frames()))
def chosen(words):
    try:
        return [target.process.pid for target in targets(frame, *words)]
    except GputopError as error:
        return str(error)
print(json.dumps([chosen(words) for words in json.loads(sys.argv[1])]))
source.close()
"""
"""Many times what `gputop kill` means, in a place of its own."""
WHO = ("amy", "+4242", "AMY", "9003", "+9001", "9001", "4242")
NOBODY_IS = ("4294967295", "99999999999", "+", "4242x", "٤٢٤٢")


@pytest.mark.system
@needs_root
def test_a_user_is_a_name_or_a_number_and_never_both(here: Machine, tmp_path: Path) -> None:
    """Uid 4242 is called amy, and somebody else is called 4242."""
    passwd = tmp_path / "passwd"
    lines = ["amy:x:4242:1::/:/bin/sh", "4242:x:9001:1::/:/bin/sh", "AMY:x:9002:1::/:/bin/sh"]
    passwd.write_text(Path("/etc/passwd").read_text() + "\n".join(lines) + "\n")
    programs = {uid: other(uid, f"job-{uid}") for uid in (4242, 9001, 9002, 9003)}
    here.change(gpu=0, compute=[{"pid": program.pid, "used": GIB} for program in programs.values()])
    mount = f'mount --bind {passwd} /etc/passwd && exec "$0" -c "$@"'
    try:
        asked = [["--user", user] for user in (*WHO, *NOBODY_IS)]
        asked += [[f"user:{user}"] for user in (*WHO, "Amy")] + [["--gpu", "0", "!user:amy"]]
        inside = ["unshare", "-m", "sh", "-c", mount, sys.executable, CHOOSE, json.dumps(asked)]
        answers = dict(zip(map(tuple, asked), json.loads(here.run(inside).stdout), strict=True))

        def of(*words: str) -> set[int] | str:
            answer = answers[words]
            pids = {program.pid: uid for uid, program in programs.items()}
            return answer if isinstance(answer, str) else {pids[pid] for pid in answer}

        for user in ("amy", "+4242"):
            assert of("--user", user) == of(f"user:{user}") == {4242}, user
        for user, uid in (("AMY", 9002), ("9003", 9003), ("+9001", 9001), ("9001", 9001)):
            assert of("--user", user) == of(f"user:{user}") == {uid}, user
        words = "user 4242 is both uid 4242 and the name of uid 9001: give --user +4242 or +9001"
        assert of("--user", "4242") == of("user:4242") == words
        assert of("--gpu", "0", "!user:amy") == {9001, 9002, 9003}
        assert "no user Amy" in str(of("user:Amy"))
        for none in NOBODY_IS:
            assert f"no user {none} on this machine" in str(of("--user", none))
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()


# Any arguments at all


@pytest.fixture(scope="module")
def machine_of_three() -> Iterator[Frame]:
    """Three real processes of ours on three GPUs."""
    programs = [subprocess.Popen(["sleep", "999"]) for _ in range(3)]
    commands = ("python train.py --lr 1", "python eval.py --of 6011", "python -m serve")
    yield frame(
        [gpu(0), gpu(1), gpu(2)],
        [
            process(program.pid, on=index, user="alice", command=command, gpu_memory=GIB)
            for index, (program, command) in enumerate(zip(programs, commands, strict=True))
        ],
    )
    for program in programs:
        program.kill()
        program.wait()


PARTS = st.sampled_from(
    ["", " ", "\t", "\u200b", "\u3000", "!", '"', '""', "or", " or ", "user:", "gpu:", "pid:",
     "container:", "mem>", "age>", "=", "0", "1G", "0G", "6011", "+", ",", "-", "/", "a", "py",
     "train", "eval", "serve", "nosuch", "me", "idle", "gpu", "gpu0", "gpu:2", "pid:1", "٣", "*"]
)  # fmt: skip
WORDS = st.lists(st.lists(PARTS, max_size=5).map("".join), max_size=4)


def names(word: str, pid: int, index: int, command: str) -> bool:
    """Whether one word, by itself, names a process; written without the filter."""
    word = word.casefold()
    if word.startswith("!"):
        return False
    if word in (str(pid), f"pid:{pid}", "user:me", "idle"):
        return True
    if re.fullmatch(rf"gpu:?0*{index}|user:\+?0*{os.getuid()}", word):
        return True
    text = word.replace('"', "")
    said = [sign for sign in text if sign.isalnum()]
    if said and text in f"{pid} alice {command}" and (len(said) > 2 or '"' in word):
        return True
    return word in ("mem>=1g", "mem>=01g", "mem>=0g1g")


def choice(frame: Frame, words: list[str], gpus: list[str]) -> set[int] | str:
    """The PIDs that are meant, or why none is."""
    try:
        selection = selection_of(typed(words, gpus), False)
        return {target.process.pid for target in meant_by(selection, frame)}
    except GputopError as error:
        return str(error)


@pytest.mark.system
@settings(max_examples=300)
@given(words=WORDS)
@example(words=["gpu:2,\u200b"])
def test_no_arguments_select_what_they_do_not_name(
    machine_of_three: Frame, words: list[str]
) -> None:
    chosen = choice(machine_of_three, words, [])
    if isinstance(chosen, str):
        assert chosen.isprintable()
        return
    pieces = [piece for word in words for piece in word.split()]
    for index, row in enumerate(machine_of_three.processes):
        command = str(row.command).casefold()
        named = any(names(piece, row.pid, index, command) for piece in pieces)
        assert named or row.pid not in chosen, (words, command)


@pytest.mark.system
@settings(max_examples=150)
@given(words=st.lists(st.text(), max_size=3), gpus=st.lists(st.text(), max_size=2))
def test_any_text_is_an_error_or_a_choice(
    machine_of_three: Frame, words: list[str], gpus: list[str]
) -> None:
    chosen = choice(machine_of_three, words, gpus)
    if isinstance(chosen, str):
        assert chosen.isprintable()
    else:
        assert len(chosen) < 3 or any(len(word.strip()) > 1 for word in words)


def test_our_own_uid_has_no_need_of_a_name() -> None:
    assert uid_of("me") == os.getuid()
