"""`gputop.snapshot`, `gputop.mapping`, and a frame as JSON, as values and in a notebook."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

import gputop
from gputop.api import snapshot_of
from gputop.model.machine.frame import Host, Process
from tests.api.programs import run, shown
from tests.builders import frame, gpu
from tests.conftest import MachineFactory, rest_long
from tests.driver import Machine


@pytest.fixture(scope="module")
def h200x8(kept: MachineFactory) -> Machine:
    return kept("h200x8")


def steady(values: dict[str, Any]) -> list[Any]:
    """What of a frame does not change from one second to the next."""
    gpus = [[gpu["uuid"], gpu["memory_total"], gpu["identity"]] for gpu in values["gpus"]]
    pids = sorted((process["pid"], process["gpu_uuid"]) for process in values["processes"])
    return [values["schema"], values["driver_version"], values["links"], gpus, pids, [*values]]


@pytest.mark.system
def test_a_snapshot_is_what_json_prints(h200x8: Machine) -> None:
    code = """
    before = left()
    frame = gputop.snapshot()
    show([frame.to_dict(), json.loads(frame.to_json()), before, left()])
    """
    values, again, first, last = shown(h200x8, code)
    assert values == again
    assert first == last, "nothing is left behind"
    done = h200x8.run([sys.executable, "-m", "gputop", "--json"])
    assert steady(values) == steady(json.loads(done.stdout))


@pytest.mark.system
def test_many_snapshots_leave_nothing(h200x8: Machine) -> None:
    """One after the other, at once in threads, and in asyncio."""
    code = """
    import asyncio
    before = left()
    for _ in range(3):
        gputop.snapshot()
    threads = [threading.Thread(target=gputop.snapshot) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    async def both():
        return await asyncio.gather(*(asyncio.to_thread(gputop.snapshot) for _ in range(2)))
    frames = asyncio.run(both())
    show([[len(frame.gpus) for frame in frames], before, left()])
    """
    counts, before, after = shown(h200x8, code)
    assert counts == [8, 8]
    assert after == before


@pytest.mark.system
@rest_long(("scenario", "words"), ("no-driver", "driver"), ("no-gpu", "GPU"), ids=["driver", "gpu"])
def test_a_machine_without(scenario: str, words: str, machine: MachineFactory) -> None:
    code = """
    errors = []
    for call in (gputop.snapshot, gputop.free, gputop.choose, gputop.mapping):
        try:
            call()
        except gputop.GputopError as e:
            errors.append([type(e).__name__, str(e)])
    show(errors)
    """
    errors = shown(machine(scenario), code)
    assert len(errors) == 4
    for name, text in errors:
        assert name == "DriverError"
        assert words in text
        assert "\n" not in text


@pytest.mark.system
@pytest.mark.long
def test_a_program_that_may_open_no_more_files(h200x8: Machine) -> None:
    """However many it may: there is an error of gputop's, or an answer, and nothing is left."""
    code = """
    import resource
    gputop.snapshot()
    first, answers = left(), []
    for more in range(12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (3 + more, 64))
        try:
            answers.append(len(gputop.snapshot().gpus))
        except gputop.SourceError as e:
            answers.append(str(e))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    show([answers, first, left()])
    """
    answers, before, after = shown(h200x8, code)
    assert (answers[0], answers[-1], after) == (
        f"cannot start the agent: {sys.executable}: Too many open files",
        8,
        before,
    )


@pytest.mark.system
def test_a_program_without_standard_streams(h200x8: Machine) -> None:
    code = """
    output = os.fdopen(os.dup2(1, 50), "w")
    for stream in range(3):
        os.close(stream)
    with gputop.watch(0.5) as frames:
        print(len(next(frames).gpus), len(gputop.snapshot().gpus), file=output)
    """
    assert run(h200x8, code).stdout == "8 8\n"


def test_a_notebook_shows_names_as_text() -> None:
    command = "<script>alert(1)</script> & \"'"
    evil = Process(pid=1, gpu_uuid="GPU-a", command=command, user="<b>", gpu_memory=1 << 30)
    made = frame([gpu(0, uuid="GPU-a", name="<img src=x>")], processes=[evil])
    html = snapshot_of(made)._repr_html_()
    assert re.findall(r"<[^>]*>", html) == [
        '<pre style="white-space: pre; overflow-x: auto">',
        "</pre>",
    ]
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;&#x27;" in html
    assert "&lt;img src=x&gt;" in html


@pytest.mark.system
def test_a_notebook_shows_a_hostile_process_as_text(machine: MachineFactory) -> None:
    here = machine("h200x8")
    here.spawn("evil", ["<script>alert(1)</script>"], gpu=2, used=1 << 30)
    html = shown(here, "show(gputop.snapshot()._repr_html_())")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("<") == 2


def test_a_frame_as_values() -> None:
    made = snapshot_of(frame([gpu(0, name="A\x1b\u202e")]))
    assert made.to_dict() == json.loads(made.to_json())
    assert made.to_json().isascii()
    assert made.to_dict()["gpus"][0]["name"] == "A\x1b\u202e"
    assert (made.to_dict()["schema"], made.to_dict()["interval"]) == (made.schema, None)
    assert isinstance(made, gputop.MachineSnapshot)
    assert isinstance(made.host, Host)


# The mapping


@pytest.mark.system
def test_a_value(h200x8: Machine) -> None:
    code = """
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    m = gputop.mapping("3,1,-1,2")
    show([[d.index for d in m.visible], m.certainty, m.count, [h.device.index for h in m.hidden],
          m.hidden[0].reason, m.stopped_at.message])
    """
    visible, certainty, count, hidden, reason, stop = shown(h200x8, code)
    assert (visible, certainty, count, hidden) == ([3, 1], "exact", 2, [0, 2, 4, 5, 6, 7])
    assert reason == "no entry names it"
    assert "'-1' is negative" in stop


@pytest.mark.system
def test_its_own_variables(h200x8: Machine) -> None:
    """They are read at each call; nothing and an empty value differ."""
    code = """
    def own():
        return [d.index for d in gputop.mapping().visible]
    unset = own()
    os.environ.update(CUDA_VISIBLE_DEVICES="5,2", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    some = own()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    show([unset, some, own(), [d.index for d in gputop.mapping("7").visible]])
    """
    assert shown(h200x8, code) == [[0, 1, 2, 3, 4, 5, 6, 7], [5, 2], [], [7]]


@pytest.mark.system
def test_of_a_process(h200x8: Machine) -> None:
    pid = h200x8.pids["train"]
    code = f"m = gputop.mapping(pid={pid})\nshow([m.value, m.count, [d.index for d in m.visible]])"
    entry = h200x8.scenario["processes"]["train"]
    value, count, visible = shown(h200x8, code)
    assert value == entry.get("env", {}).get("CUDA_VISIBLE_DEVICES")
    assert count == len(visible)
    code = """
    said = []
    for asked in ({"pid": 2**22 + 1}, {"value": 0}, {"value": "0", "pid": 1}):
        try:
            gputop.mapping(**asked)
        except gputop.GputopError as e:
            said.append([type(e).__name__, str(e)])
    show([gputop.mapping(pid=os.getpid()).value, said])
    """
    own, said = shown(h200x8, code)
    assert own is None
    assert [name for name, _ in said] == ["UsageError"] * 3
    assert said[-1][1] == "give a value or a pid, not both"


@pytest.mark.system
def test_on_a_machine_with_mig(machine: MachineFactory) -> None:
    here = machine("mig")
    uuid = here.gpu(0)["mig"]["devices"][0]["uuid"]
    code = f"""
    m, n = gputop.mapping({uuid!r}), gputop.mapping("0")
    own = [d.own_uuid for d in m.visible]
    show([[m.certainty, own], [n.visible, n.certainty, n.documented], n.because])
    """
    certain, unknown, because = shown(here, code)
    assert certain == ["exact", [uuid]]
    assert unknown == [None, "unknown", False]
    assert "MIG" in because
