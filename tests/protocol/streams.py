"""A small machine at two instants, as messages and as lines."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gputop.model.machine.detail import EnvVariable, ProcessDetail, ProcessStack
from gputop.model.machine.environment import CudaContext, Environ
from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.origin import Ancestor, Origin
from gputop.model.machine.probed import Probed, ProbedDevice
from gputop.model.machine.process_id import ProcessId
from gputop.model.machine.sections import Ecc, Pcie, Power, Throttle
from gputop.model.machine.signals import Freed, Verdict
from gputop.model.machine.topology import Topology
from gputop.protocol.assemble import Assembler
from gputop.protocol.codec import encode_line
from gputop.protocol.messages import AgentMessage, Hello, Preview, Reply
from gputop.protocol.split import Splitter

HELLO = Hello(
    oldest=2,
    newest=2,
    protocol=2,
    version="1.0",
    host="node-07",
    user="alice",
)

GPU = Gpu(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H200",
    pci_bus_id="00000000:19:00.0",
    memory_total=150754820096,
    memory_used=51539607552,
    memory_free=99215212544,
    utilization=0.97,
    temperature=61.0,
    power=540.25,
    power_limit=700.0,
    listed="all",
    power_more=Power(average=540.0, limit_max=700.0),
    throttle=Throttle(reasons=("sw_power_cap",), shares={"sw_power_cap": 0.25}),
    pcie=Pcie(generation=5, tx=1.5e9),
    ecc=Ecc(enabled=True, corrected=0),
)
IDLE = Gpu(index=1, uuid="GPU-1", name="NVIDIA H200", memory_used=0, utilization=0.0)

TRAIN = Process(
    pid=21195,
    start_ticks=4711,
    start_time=1700000000.25,
    gpu_uuid="GPU-0",
    gpu_memory=41016099840,
    sm_utilization=0.92,
    idle_for=0.0,
    user="alice",
    command="python train.py --config b.yaml",
    cpu=1.04,
    rss=4294967296,
    state="R",
    parent=20980,
    threads=42,
    io_read=None,
    origin=Origin(cwd="/home/alice", ancestors=(Ancestor(20980, "bash"),)),
    cuda_context=CudaContext(Environ({"CUDA_VISIBLE_DEVICES": "0"})),
)
IDLER = replace(
    TRAIN, pid=30411, command="python -m ipykernel", sm_utilization=None, idle_for=2460.5
)

FRAME = Frame(
    host=Host(name="node-07", boot_id="b0071d", cpu=0.41, cpu_count=96, memory_total=2**40,
              memory_used=2**38),
    time=1700000010.5,
    interval=1.0,
    driver_version="580.159.03",
    cuda_version="13.0",
    gpus=(GPU, IDLE),
    processes=(TRAIN, IDLER),
    links=(("X", "NV18"), ("NV18", "X")),
    topology=Topology(numa=(0, 0)),
)  # fmt: skip
LATER = replace(
    FRAME,
    time=1700000011.5,
    gpus=(replace(GPU, utilization=0.5, power=300.0), IDLE),
    processes=(replace(TRAIN, cpu=0.5),),
)
EARLY = Preview(host=FRAME.host, time=1700000009.5, gpus=(IDLE,))

REPLIES = (
    Reply(
        request="s1",
        done=False,
        verdicts=(
            Verdict(
                request_id="s1",
                process=ProcessId(21195, 4711),
                start_time=1700000000.25,
                command="python train.py",
                signal=15,
                outcome="exited",
                seconds=0.12,
                freed=(Freed("GPU-0", 41016099840),),
                words="ended 0.1 s after SIGTERM",
            ),
        ),
    ),
    Reply(
        request="p1",
        probed=(
            Probed((ProbedDevice("5e0", "0000:19:00.0", "NVIDIA H200"),), None, "0", "PCI_BUS_ID"),
            Probed(None, "cuInit failed with CUDA error 999"),
        ),
    ),
    Reply(
        request="d1",
        detail=ProcessDetail(
            ProcessId(21195, 4711), variables=(EnvVariable("LANG", "other"),), variables_count=1,
            files=61,
        ),
    ),
    Reply(request="t1", stack=ProcessStack(ProcessId(21195, 4711), ("main (train.py:1)",))),
    Reply(request="t2", error="too many questions wait: ask again"),
)  # fmt: skip


def stream() -> list[AgentMessage]:
    """Every kind of message, in an order that an agent may choose."""
    splitter = Splitter()
    return [
        HELLO,
        *splitter.split(EARLY),
        *splitter.split(FRAME),
        *REPLIES,
        *splitter.split(LATER),
    ]


def lines_of(messages: Iterable[AgentMessage]) -> list[bytes]:
    """The messages as lines, in order."""
    return [encode_line(number, message) for number, message in enumerate(messages)]


def read(lines: Iterable[bytes]) -> list[Frame | Reply]:
    """What a reader makes of lines. SourceError."""
    assembler = Assembler()
    return [told for line in lines if (told := assembler.read(line)) is not None]
