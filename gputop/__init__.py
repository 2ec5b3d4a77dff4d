"""gputop: who is on which GPU, and which GPU is cuda:0.

    api.py      gputop for programs: all that `import gputop` gives
    __main__.py starts the agent before it imports anything slow, then runs the command line
    cli.py      the command line: it prints the error that ends gputop and picks the exit code
    parser.py   the options of gputop and of each command
    commands/   the sub-commands, one module each
    tui/        the screen; the only package that imports textual or rich
        pages/      whole screens about one subject
        dialogs/    screens on top of a screen
        panes/      parts of screens: tables, editors, graphs, lines
        terminal/   all that is private to Textual or writes raw bytes to a terminal
    manual/     the user's manual: Markdown pages, and the code that reads them
    export/     frames for readers other than the screen: text, JSON, pages over HTTP
        browser/    the web server of `gputop serve`
        prometheus/ a frame as families of metrics
    notify.py   notifies a user who is not watching: terminal, command
    settings.py defaults, file, environment, flags
    allocation/ GPUs for a job: watching until there are enough, reserving, naming them
    sources/    where frames come from: a local agent, the demo
        ssh/        an agent on another machine: how gputop connects, carries it there, gives it up
        prometheus/ thousands of machines, as a Prometheus server knows them
    recording/  messages on disk: data files, their indices, the writer and the reader
    agent/      runs on the GPU machine: reads the driver and the processes, makes frames
        signals/    sends signals through a pidfd and follows what becomes of each process
        gpu/        reads the driver: one thread for each GPU, one module for each subject
        doctor/     finds what is installed
        process/    what each process is, where it belongs, what it was started with
    reservations/  GPUs that a user has reserved: reading and taking
    protocol/   what an agent and its reader send each other
    model/      what a GPU machine is: plain data and pure functions, no I/O
        fleet/      several machines: a row for each, their free GPUs, their users
        conditions/ what a user can wait for: the end of processes, idle GPUs
        usage/      GPU-hours held, worked and idle over days, and the hours not known
        processes/  filter, views, order, recently ended
        doctor/     what an installation should look like
        metrics/    every value that is shown, declared once, and its history
        cuda/       CUDA_VISIBLE_DEVICES: parse, enumerate, resolve, explain, advise, pick
        health/     findings, XIDs, activity, unaccounted memory
        machine/    frame, host, GPUs, processes, topology, text
    files.py    reads and writes gputop's own files with care
    variables.py  the environment variables that root keeps
    trust.py    what gputop may run, connect to and open
    proc.py     parsers of /proc/PID/mountinfo, status and the like
    output.py   standard output and standard error, as every command writes to them
    errors.py   the exception tree
    deadline.py a call that may hang

Imports go down this list, never up; `pyproject.toml` has the contracts.

Glossary: one term, one meaning. (NVML: its API reference; CUDA: the CUDA C++ Programming Guide;
the other terms are gputop's own, with their module.)

    attempt         one process of a signal request, from the signal to its end
                    (agent/signals/attempt.py)
    carried         said of an agent that is sent over ssh into the memory of a Python on a machine
                    without gputop (sources/ssh/carry.py)
    certainty       how far a mapping can be relied on: exact, expected, predicted or unknown
                    (model/cuda/enumeration.py)
    chunk           a part of a recording that can be read without the parts before it
                    (recording/chunks.py)
    condition       what `gputop wait` waits for on a machine (Condition,
                    commands/targets/wait_conditions.py)
    connection      one way to an agent on another machine, from waiting for its turn to its end
                    (sources/ssh/connection.py); its state is a HostLink (model/fleet/link.py)
    CUDA context    what decides which GPUs a process sees: variables, device nodes, libraries,
                    all read from /proc (CudaContext, model/machine/environment.py)
    CUDA device     a GPU or MIG device as CUDA counts it (CudaDevice, model/cuda/enumeration.py)
    device holder   a process that has a GPU's device node open while the driver does not list it
                    (DeviceHolder, model/machine/gpu.py)
    device ID       index, GPU instance and compute instance of a CUDA device (DeviceId)
    enrichment      facts about processes that take too long to read for every frame, and so are
                    read in a thread of their own (Enrichment, agent/process/enrichment.py)
    entry           one comma-separated part of a CUDA_VISIBLE_DEVICES value: a ParsedEntry by
                    itself, a ResolvedEntry among the others (model/cuda/entries.py)
    exposition      the newest frame as Prometheus reads it (export/prometheus/exposition.py)
    finding         what was found on a GPU, in an installation or in a value, and its level: error,
                    warning, info or ok (Finding, model/machine/finding.py)
    frame           everything known of one machine at one instant, immutable; all that a reader
                    sees (Frame, model/machine/frame.py)
    free            of a GPU: healthy, usable by a job, not reserved, not at work, with no process
                    on it and no unaccounted memory (model/health/free.py)
    gap             a span of a recording without samples, of which nothing is known
                    (Coverage, model/usage/spans.py)
    GPU instance    a slice of a GPU's memory and engines in MIG mode (NVML)
    handle          a process held by its pidfd, even if its PID is reused
                    (ProcessHandle, agent/signals/handle.py)
    index           a GPU's number in NVML's order, which is by PCI bus id (NVML)
    inventory update  what rarely changes on a machine, sent when it does; the numbers of each
                    instant are a Sample, and a reader makes frames of both (protocol/)
    lease           how long an agent on another machine runs on while its reader sends nothing
                    (sources/ssh/pacing.py)
    link            the connection between two GPUs, rated as `nvidia-smi topo -m` rates it
                    (model/machine/topology.py)
    liveness        whether a process still runs, on a GPU or not: it is known by its PID and its
                    start in clock ticks (ProcessLiveness, model/machine/process_id.py)
    mapping         what a CUDA_VISIBLE_DEVICES value means on a machine: which GPU is cuda:k, and
                    why others are hidden (Mapping, model/cuda/mapping.py)
    mapping query   what a person asks about the mapping; the answer is a MappingResult
                    (model/cuda/mapping_query.py)
    metric          one value shown for a GPU or a process (Metric, model/metrics/metric.py)
    MIG device      a compute instance of a GPU in MIG mode, with its own UUID (NVML); in words for
                    users a slice, with a number: `0:2` is GPU instance 2 of GPU 0 (mig_number)
    nested          below the first PID namespace, as in most containers (agent/nested.py)
    ordinal         a device's number in CUDA's order, after CUDA_VISIBLE_DEVICES is applied: the k
                    of cuda:k (CUDA)
    origin          where a process belongs: who started it, from where, in which container or job
                    (Origin, model/machine/origin.py)
    past            earlier frames of a machine, kept in memory or recorded (Past,
                    sources/source.py); a playback shows one instant of it (tui/playback.py)
    probe           the question to the CUDA driver itself what a value means (agent/probe.py)
    process id      PID and start in clock ticks: a PID is reused, an id is not (ProcessId,
                    model/machine/process_id.py); with a boot id it is a ProcessKey
    recording       the messages of one or more machines on disk, in one file or in a folder with a
                    file for each day (Recording, recording/reader.py)
    reply           the answer to one request, sent between frames (Reply, protocol/messages.py)
    report          what an exporter says of a GPU where no agent of gputop reads the machine
                    (GpuReport, model/machine/frame.py)
    request         what a reader sends to an agent (Request, protocol/messages.py)
    reservation     a GPU that a user means to use, kept by a lock that ends with its last holder;
                    advisory (Reservation, model/machine/gpu.py; reservations/)
    sample          the numbers of one instant: of a GPU, as it answered in one cycle (GpuSample,
                    agent/gpu/reader.py), or of a machine, as they travel (Sample, protocol/)
    section         what a GPU is asked about one subject, at an interval of its own
                    (agent/gpu/sections.py; its data: model/machine/sections.py)
    source          the frames of one machine, wherever they come from (Source, sources/source.py)
    timeout         how long to wait for something, in seconds
    unaccounted     memory in use that belongs to no process the driver lists
                    (model/health/unaccounted.py)
    verdict         what became of one process that was to get a signal
                    (Verdict, model/machine/signals.py)
    XID             an error that the driver reports by number (NVIDIA's XID catalog)
"""

from __future__ import annotations

from gputop.version import __version__

__all__ = [
    "CudaDevice",
    "DriverError",
    "Gpu",
    "GputopError",
    "Host",
    "LoginError",
    "MachineSnapshot",
    "Mapping",
    "NotEnoughGpusError",
    "Process",
    "SourceError",
    "UsageError",
    "__version__",
    "choose",
    "free",
    "mapping",
    "snapshot",
    "watch",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gputop.api import *
else:

    def __getattr__(name: str) -> object:
        """Import what programs use when they first use it: `import gputop` starts nothing, and most
        of gputop imports this module for its version alone."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = value = getattr(import_module("gputop.api"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
