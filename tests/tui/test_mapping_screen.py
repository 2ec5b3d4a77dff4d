"""The mapping on the whole screen."""

from __future__ import annotations

import re

import pytest
from textual.binding import Binding
from textual.events import Paste
from textual.widgets import Input

from gputop.model.machine.frame import Host
from gputop.model.machine.gpu import Gpu, MigDevice
from gputop.model.machine.probed import Probed, ProbedDevice
from gputop.protocol.messages import Probe
from gputop.settings import Session, Thresholds
from gputop.tui.glyphs import ASCII
from gputop.tui.main import MainScreen
from gputop.tui.pages.mapping import MappingScreen
from gputop.tui.pages.mapping_tables import LogicalTable, PhysicalTable
from gputop.tui.panes.heading import Heading
from gputop.tui.panes.lines import Lines
from tests.builders_tui import Screenful, frame_of, gpu_of, process_of, shown, uuid_of
from tests.conftest import rest_long
from tests.tui.test_mapping import devices

SIXTEEN = tuple(gpu_of(index) for index in range(16))
FOUR = SIXTEEN[:4]
WIDE = (200, 50)
FIELDS = ("order", "tf-visible", "tf-logical", "jax-visible", "fraction", "local-rank", "request")


def mig_gpu(index: int, count: int) -> Gpu:
    parts = tuple(MigDevice(uuid=mig_uuid(index, k), gi=k, ci=0, profile="1g.18gb")
                  for k in range(1, count + 1))  # fmt: skip
    return gpu_of(index, mig_mode=True, mig=parts)


def mig_uuid(gpu: int, k: int) -> str:
    return f"MIG-{gpu}{k}000000-0000-5000-8000-000000000000"


def table(screen: Screenful, kind: type[LogicalTable] | type[PhysicalTable]) -> list[str]:
    """The rows of a table that are in sight."""
    region = screen.app.screen.query_one(kind).region
    lines = screen.lines[region.y + 2 : region.bottom]
    rows = [line[region.x : region.right].strip() for line in lines]
    return [row for row in rows if row]


def logical(screen: Screenful) -> dict[str, str]:
    """cuda:k -> what it is."""
    found = {}
    for line in table(screen, LogicalTable):
        place = re.search(r"GPU \d+(:\d MIG \S+| +\w+)", line)
        assert place is not None, line
        found[line.split()[0].strip("▸")] = " ".join(place[0].split())
    return found


def physical(screen: Screenful) -> dict[str, str]:
    """What it is -> cuda:k, or `–` with the reason."""
    found = {}
    for line in table(screen, PhysicalTable):
        place = re.search(r"cuda:\d+|–  ", line)
        assert place is not None, line
        found[" ".join(line[: place.start()].strip("▸").split())] = place[0].strip()
    return found


async def field(screen: Screenful, name: str, text: str) -> None:
    """Type into a field that is empty."""
    if not isinstance(screen.app.focused, Input):
        await screen.press("m")
    screen.app.screen.query_one(f"#{name}").focus()
    await screen.press()
    await screen.type(text)


async def test_it_goes_by_the_settings() -> None:
    """Its last line by the keys, its heading by the thresholds."""
    settings = Session(keys={"whole.order": "x"}, thresholds=Thresholds(heavy=0.4, moderate=0.3))
    host = Host(name="node", cpu=0.5)
    async with shown(frame_of(host=host), settings=settings) as screen:
        await screen.press("M")
        assert " x order " in screen.lines[-1]
        [heading] = screen.app.screen.query(Heading)
        assert ("50%", "heavy") in [*heading.pieces(0)]


async def test_both_directions_of_sixteen() -> None:
    async with shown(frame_of(*SIXTEEN), size=WIDE) as screen:
        await screen.press("M")
        assert len(table(screen, LogicalTable)) == len(table(screen, PhysicalTable)) == 16
        for name in ("cuda:15", "/device:GPU:15", "CudaDevice(id=15)", "cupy.cuda.Device(15)",
                     "cuda.gpus[15]", "device_id=15", "CUDA15"):  # fmt: skip
            assert name in screen.text
        assert uuid_of(15) in screen.text
        assert "0000:10:00.0" in screen.text
        await screen.press("m")
        await screen.type("3,1,9,x")
        assert logical(screen) == {f"cuda:{k}": f"GPU {n} H200" for k, n in enumerate((3, 1, 9))}
        names = {"GPU 3 H200": "cuda:0", "GPU 1 H200": "cuda:1", "GPU 9 H200": "cuda:2"}
        assert physical(screen) == {f"GPU {k} H200": "–" for k in range(16)} | names
        assert "no entry names it" in screen.line_with("GPU 2 ")
        assert "! error: 'x' is not a number" in screen.text
        assert "  export CUDA_VISIBLE_DEVICES=3,1,9" in screen.text.splitlines()


@pytest.mark.long
async def test_mig_devices() -> None:
    job = process_of(7, gpu=0, user="bob", gpu_instance=2, compute_instance=0)
    machine = frame_of(mig_gpu(0, 3), gpu_of(1), mig_gpu(2, 0), job)
    async with shown(machine, size=WIDE) as screen:
        await screen.press("M", "m")
        await screen.type(f"{mig_uuid(0, 3)},{mig_uuid(0, 2)}")
        part = "GPU 0:{} MIG 1g.18gb"
        assert logical(screen) == {"cuda:0": part.format(3), "cuda:1": part.format(2)}
        found = physical(screen)
        assert found == {
            "GPU 0 H200": "–",
            part.format(1): "–",
            part.format(2): "cuda:1",
            part.format(3): "cuda:0",
            "GPU 1 H200": "–",
            "GPU 2 H200": "–",
        }
        assert "MIG mode" in screen.line_with("GPU 0  H200")
        assert "bob" in screen.line_with("cuda:1")
        assert "bob" not in screen.line_with("cuda:0")


async def test_sixteen_gpus_with_mig_fit_side_by_side() -> None:
    machine = [mig_gpu(0, 7), *SIXTEEN[1:]]
    async with shown(frame_of(*machine), size=WIDE) as screen:
        await screen.press("M", "m")
        assert screen.app.focused is not None
        screen.app.focused.post_message(Paste(",".join(uuid_of(k) for k in range(1, 13))))
        await screen.press()
        assert len(table(screen, LogicalTable)) == 12
        assert len(table(screen, PhysicalTable)) == 23
        assert physical(screen)["GPU 12 H200"] == "cuda:11"


async def test_the_tables_scroll_where_they_do_not_fit() -> None:
    async with shown(frame_of(*SIXTEEN), size=(80, 24)) as screen:
        await screen.press("M")
        assert list(logical(screen)) == ["cuda:0", "cuda:1", "cuda:2"]
        assert "1-3 of 16" in screen.line_with("Logical to physical")
        await screen.press("end")
        assert list(logical(screen))[-1] == "cuda:15"
        await screen.press("tab", "end")
        assert list(physical(screen))[-1] == "GPU 15 H200"
        assert "0000:10:00.0" in table(screen, PhysicalTable)[-1]
        assert "unset CUDA_VISIBLE_DEVICES" in screen.text


async def test_the_question_is_the_panes() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("m", "2", "enter", "o", "M")
        assert list(logical(screen).values()) == ["GPU 2 H200"]
        assert "PCI_BUS_ID" in screen.text
        await screen.press("m", "end", "comma", "1", "enter", "M")
        assert isinstance(screen.app.screen, MainScreen)
        assert devices(screen) == {"cuda:0": 2, "cuda:1": 1}
        await screen.press("m", "up")
        assert screen.mapping_state.mapping.value == "2"
        await screen.press("enter", "M", "U", "escape")
        assert "CUDA_VISIBLE_DEVICES is unset" in screen.text
        assert len(devices(screen)) == 4


async def test_it_lives() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("M")
        await screen.show(frame_of(*FOUR, process_of(7, gpu=2, user="bob")))
        assert "bob" in screen.line_with("CUDA2 ")
        await screen.press("question_mark")
        await screen.show(frame_of(*FOUR[:2]))
        await screen.press("escape")
        assert len(logical(screen)) == 2
        await screen.show_problem("no_gpu")
        assert "rouble no_gpu" in screen.text
        await screen.show(frame_of(*FOUR))
        await screen.press("m")
        assert len(devices(screen)) == 4


async def test_it_knows_of_a_pause() -> None:
    async with shown(frame_of(*FOUR), interval=5) as screen:
        await screen.press("p", "M")
        assert "PAUSED" in screen.lines[0]
        assert screen.lines[0].rstrip().endswith("5s")
        await screen.press("p")
        assert "PAUSED" not in screen.lines[0]


async def test_the_order_by_key_and_by_field() -> None:
    mixed = (gpu_of(0), gpu_of(1, name="NVIDIA A100"))
    async with shown(frame_of(*mixed), size=WIDE) as screen:
        await screen.press("M")
        assert "which is cuda:0 is not known" in screen.text
        assert "visible, but its name is not known" in screen.text
        await screen.press("o")
        assert "PCI_BUS_ID" in screen.line_with("CUDA_DEVICE_ORDER")
        assert len(logical(screen)) == 2
        await screen.press("o", "o")
        await field(screen, "order", "BUS")
        assert screen.mapping_state.mapping.order == "BUS"
        assert "! error: With anything but PCI_BUS_ID" in screen.text
        await screen.press(*["backspace"] * 3)
        assert screen.mapping_state.mapping.order is None


@pytest.mark.long
async def test_what_tensorflow_selects() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("M", "m")
        await screen.type("1,2")
        await field(screen, "tf-visible", "1")
        assert "TensorFlow /device:GPU:0  -> GPU 2" in screen.text
        await field(screen, "tf-logical", "1:2048,1024")
        assert "TensorFlow /device:GPU:1  -> GPU 2  1.00 GiB" in screen.text
        await field(screen, "fraction", "0.5")
        assert "0.5 of GPU 2 is 70.00 GiB, which is free now" in screen.text
        await field(screen, "request", "cuda:1")
        assert re.search("  cuda:1 +-> GPU 2\n", screen.text)
        await screen.press("backspace", "2")
        assert screen.text.count("For physical GPU 2 use cuda:1") == 1
        await screen.press("escape", "escape", "M")
        kept = [screen.app.screen.query_one(f"#{name}").value for name in FIELDS]  # type: ignore[attr-defined]
        assert kept == ["", "1", "1:2048,1024", "", "0.5", "", "cuda:2"]


async def test_what_jax_and_torchrun_select() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("M", "m")
        await screen.type("1,2")
        await field(screen, "jax-visible", "1")
        assert re.search(r"JAX jax\.devices\(\)\[0\] +-> GPU 2", screen.text)
        assert "0.75 of GPU 2 is 105.00 GiB, which is free now" in screen.text
        await field(screen, "local-rank", "1")
        assert re.search("LOCAL_RANK=1 cuda:1 +-> GPU 2", screen.text)
        await screen.press("backspace", "x")
        assert "! a number from 0" in screen.text


MISTAKES = (
    ("tf-logical", "TF logical devices", "0:1", "x", "! write it as 0:2048,2048; 1:1024"),
    ("tf-logical", "TF logical devices", "0:1;1:1", ";2", "! write it as 0:2048,2048; 1:1024"),
    ("fraction", "memory fraction", "0.5", "x", "! a number above 0 and at most 1"),
    ("fraction", "memory fraction", "1", "1", "! a number above 0 and at most 1"),
    ("fraction", "memory fraction", "1", "[/]", "! a number above 0 and at most 1"),
    ("request", "requested device", "", "cud", "! write cuda:2 or /device:GPU:2"),
)
"""The field, its label, a value, what is typed after it, and what is said then."""


@rest_long("size", WIDE, (80, 24))
async def test_a_mistake_is_told_beside_its_field(size: tuple[int, int]) -> None:
    async with shown(frame_of(*FOUR), size=size) as screen:
        await screen.press("M")
        for name, label, good, bad, error in MISTAKES:
            await field(screen, name, good)
            before = screen.mapping_state.query
            assert "!" not in screen.text
            await screen.type(bad)
            assert error in screen.line_with(label)
            assert screen.mapping_state.query == before
            await screen.press(*["backspace"] * len(bad))
            assert "!" not in screen.text
            await screen.press(*["backspace"] * len(good))


async def test_what_tensorflow_would_not_take() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("M")
        await field(screen, "tf-visible", "1,x")
        assert "TensorFlow raises an error: 'x' is not a number" in screen.text


async def test_the_driver_and_copies() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("M", "m", "1", "enter", "v")
        assert screen.source.requests == [Probe("1", None, "mapping")]
        assert "asking the driver..." in screen.text
        found = ProbedDevice(uuid_of(1)[4:], "0000:02:00.0", "H200")
        await screen.show(frame_of(*FOUR), probed=(Probed((found,), None, "1", None),))
        assert "verified by the driver" in screen.line_with("Logical to physical")
        await screen.press("y")
        assert screen.app.clipboard == "export CUDA_VISIBLE_DEVICES=1"
        assert "copied (OSC 52): export CUDA_VISIBLE_DEVICES=1" in screen.text
        assert screen.line_with("Logical to physical")
        screen.hand.wait()
        await screen.drawn()
        assert "copied" not in screen.text


async def test_completion() -> None:
    async with shown(frame_of(*FOUR), size=WIDE) as screen:
        await screen.press("M", "m", *"GPU", "minus", *"00000003", "tab", "tab")
        assert screen.mapping_state.mapping.value == uuid_of(3)
        assert screen.app.focused is screen.app.screen.query_one("#order")


async def test_the_palette_knows_its_keys() -> None:
    async with shown(frame_of(*FOUR)) as screen:
        await screen.press("M", "ctrl+p")
        await screen.type("order")
        await screen.press("enter")
        while screen.mapping_state.mapping.order is None:
            await screen.pilot.pause()
        assert isinstance(screen.app.screen, MappingScreen)


def test_every_key_is_described() -> None:
    for binding in MappingScreen.BINDINGS:
        assert isinstance(binding, Binding)
        assert all((binding.description, binding.tooltip, binding.id, binding.group))


async def test_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "glyphs", ASCII)
    named = frame_of(gpu_of(0, name="é"), mig_gpu(1, 2), process_of(1, user="zoë"))
    async with shown(named, size=WIDE) as screen:
        screen.app.add_class("-ascii")
        for keys in (("M",), ("m", "0", "comma"), ("tab", "y")):
            await screen.press(*keys)
            assert {c for line in screen.lines for c in line if not c.isascii()} == set(), keys
