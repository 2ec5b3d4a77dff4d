"""gputop: who is on which GPU, and which GPU is cuda:0.

    __main__.py starts the agent before anything is imported, then the command line
    cli.py      the command line; the only place that prints errors and picks exit codes
    parser.py   the options, and the commands with theirs
    commands/   the sub-commands, a module each
    tui/        the screen; the only package that imports textual or rich
        panes/      parts of screens: tables, editors, graphs, lines
        pages/      whole screens of one subject
        dialogs/    screens over a screen
        terminal/   all that is private to Textual or raw to a terminal
    manual/     the user's manual: Markdown pages, and what reads them
    export/     frames leaving without a TUI: text, JSON, and pages over HTTP
        browser/    the web server of `gputop serve`
        prometheus/ a frame as families of metrics
    notify.py   telling somebody who does not look: terminal, command, web hook
    settings.py defaults, file, environment, flags
    sources/    where frames come from: a local agent, the demo
        ssh/        an agent elsewhere: how it is reached, carried along, and given up
        prometheus/ thousands of machines as a Prometheus server knows them
    recording/  messages on disk: data files, their indices, who writes and who reads them
    agent/      runs on the GPU machine: reads the driver and the processes, makes frames
        gpu/        the driver: one GPU by one thread, a module for each subject
        process/    what each process is, where it belongs, what it was started with
        signals/    signals through a pidfd, and what became of each process
        doctor/     what is installed
    reservations/  GPUs that somebody has reserved: reading and taking
    protocol/   what an agent and its reader say to each other
    model/      what a GPU machine is: plain data and pure functions, no I/O
        machine/    frame, host, GPUs, processes, topology, text
        health/     findings, XIDs, activity, unaccounted memory
        cuda/       CUDA_VISIBLE_DEVICES: parse, enumerate, resolve, explain, advise, pick
        metrics/    what is shown, declared once, and its history
        processes/  filter, views, order, recently ended
        usage/      GPU-hours held, worked and idle over days, and what is not known of them
        conditions/ what is waited for: the end of processes, idle GPUs
        doctor/     what an installation should look like
    files.py    what gputop writes, and reads of its own, with care
    trust.py    what gputop runs, connects to and opens
    output.py   standard output, as every command writes to it
    errors.py   the exception tree
    deadline.py a call that may hang

An import points down this list, never up; `pyproject.toml` has the contracts.

Glossary: one term, one meaning. (NVML: its API reference; CUDA: the CUDA C++ Programming Guide;
the rest is gputop's own, with its module.)

    attempt         one process of a signal request, from the signal to its end
                    (agent/signals/attempt.py)
    carried         of an agent: it comes over ssh into the memory of a Python there, where gputop
                    is not installed (sources/ssh/carry.py)
    certainty       how far a mapping can be relied on: exact, expected, predicted or unknown
                    (model/cuda/enumeration.py)
    chunk           a stretch of a recording that can be read without what comes before it
                    (recording/chunks.py)
    condition       what `gputop wait` waits for on a machine (Condition, commands/awaited.py)
    connection      the way to an agent elsewhere, from the wait for its turn to its end; its Link
                    tells how it is just now (sources/ssh/connection.py)
    CUDA context    what decides which GPUs a process sees: variables, device nodes, libraries,
                    as /proc tells it (CudaContext, model/machine/environment.py)
    CUDA device     a GPU or MIG device as CUDA counts it (CudaDevice, model/cuda/enumeration.py)
    device holder   a process that has a GPU's device node open while the driver does not list it
                    (DeviceHolder, model/machine/gpu.py)
    device ID       which CUDA device it is: index, GPU instance, compute instance (DeviceId)
    enrichment      what is found out of processes in a thread of its own, for it takes longer than
                    a tick may (Enrichment, agent/process/enrichment.py)
    entry           one comma-separated part of a CUDA_VISIBLE_DEVICES value: a ParsedEntry by
                    itself, a ResolvedEntry among the others (model/cuda/)
    exposition      the newest frame as Prometheus reads it (export/prometheus/exposition.py)
    finding         something of a GPU that needs attention (model/health/findings.py)
    frame           everything known of one machine at one instant, immutable; all that a reader
                    sees (Frame, model/machine/frame.py)
    free            nobody on it, nothing unaccounted for, healthy, not reserved, and not at work
                    (model/health/free.py)
    GPU instance    a slice of a GPU's memory and engines in MIG mode (NVML)
    gap             a span of a recording without samples: nothing is known of it (Coverage,
                    model/usage/spans.py)
    handle          a process held by its pidfd, whatever becomes of its number
                    (ProcessHandle, agent/signals/handle.py)
    index           the number of a GPU in NVML's order, that of its PCI bus (NVML)
    lease           how long an agent elsewhere goes on while its reader says nothing
                    (sources/ssh/crowd.py)
    liveness        whether a process still runs, by its PID and its start in clock ticks, be it on
                    a GPU or not (ProcessLiveness, model/machine/liveness.py)
    link            the way between two GPUs, rated as `nvidia-smi topo -m` does
                    (model/machine/topology.py)
    mapping         what a CUDA_VISIBLE_DEVICES value means on a machine: which GPU is cuda:k, and
                    why others are hidden (Mapping, model/cuda/mapping.py)
    mapping query   what a person asks of the mapping; its answer is a MappingResult
                    (model/cuda/mapping_query.py)
    metric          one thing that is shown of a GPU or a process (Metric, model/metrics/metric.py)
    MIG device      a compute instance of a GPU in MIG mode, with a UUID of its own (NVML)
    nested          below the first PID namespace, as in most containers (agent/nested.py)
    ordinal         the number of a device in CUDA's order, after CUDA_VISIBLE_DEVICES: the k of
                    cuda:k (CUDA)
    origin          where a process belongs: who started it, from where, in which container or job
                    (Origin, model/machine/origin.py)
    past            frames of a machine that can be looked at again, in memory or recorded
                    (Past, sources/past.py); a playback is at one instant of it (tui/playback.py)
    probe           asking the CUDA driver itself what a value means (agent/probe.py)
    process key     boot id, PID and start time: a PID is reused, a key is not (ProcessKey)
    inventory update
                    what rarely changes of a machine, sent when it does; the numbers of each instant
                    are a Sample, and a reader makes frames of both (protocol/)
    recording       the messages of one machine or several on disk, in a file or a folder with a
                    file a day (Recording, recording/reader.py)
    reply           the answer to one request, beside the frames (Reply, protocol/messages.py)
    request         what a reader sends to an agent (Request, protocol/messages.py)
    reservation     a GPU that somebody means to use, by a lock that ends with its last holder;
                    advisory (Reservation, model/machine/gpu.py; reservations/)
    sample          what one GPU answered in one cycle (GpuSample, agent/gpu/reader.py)
    section         what a GPU is asked about one subject, at a pace of its own
                    (agent/gpu/sections.py; its data: model/machine/sections.py)
    source          frames of one machine, wherever they come from (Source, sources/source.py)
    timeout         how long something is waited for, in seconds
    unaccounted     memory in use that is of no process the driver lists
                    (model/health/unaccounted.py)
    verdict         what became of one process that a signal was for
                    (Verdict, model/machine/signals.py)
    XID             an error that the driver reports by number (NVIDIA's XID catalog)
"""

__version__ = "0.1.0"
