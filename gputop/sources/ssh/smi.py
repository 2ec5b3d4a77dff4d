"""The poor stream: frames of a machine without an agent, from nvidia-smi, ps and /proc.

A script for /bin/sh writes lines that `SmiReader` makes frames of. A line is one or more records
with a record separator between them; a record is a word and its content:

    fields NAME,...     the values in each `gpu`, by nvidia-smi's names
    gpu VALUE, ...      the first of them begins a round, the `count`th ends it
    app UUID PID MIB    a process on a GPU;  apps: there are no more
    stat TEXT           /proc/PID/stat of one of these
    ps PID USER COMMAND
    cpu, uptime, mem, host, boot, btime, cpus, ticks, page, space       of the machine
    cuda VERSION        from nvidia-smi's own table
    said TEXT           what nvidia-smi says instead of values;  end: it has ended

Names of fields: `nvidia-smi --help-query-gpu`, `--help-query-compute-apps`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gputop.errors import SourceError
from gputop.model.health.unaccounted import unaccounted
from gputop.model.machine.frame import Frame, Host, Process
from gputop.model.machine.gpu import Gpu
from gputop.model.machine.text import MIB, printable
from gputop.protocol.assemble import MAX_GPUS, MAX_PROCESSES
from gputop.protocol.codec import decode_request
from gputop.protocol.harmless import harmless
from gputop.protocol.messages import AnsweredRequest, Reply
from gputop.sources.source import REFUSED
from gputop.sources.ssh.crowd import LEASE
from gputop.sources.ssh.smi_values import (
    FEWER_FIELDS,
    FIELDS,
    Counters,
    Stat,
    counters_of,
    gpu_of,
    host_cpu,
    number,
    stat_of,
    whole,
)

WORDS = "neither gputop nor Python 3.10 is there: only nvidia-smi and ps are read"
"""How a screen describes such a machine."""
_MOST_REFUSED = 1000
_LONGEST, _MOST_KEPT = 8192, 16 << 20
"""Characters that are read of a record, and of a round: the machine may belong to an attacker."""
_SEPARATOR = "\x1e"
_FIRST_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: in another namespace PIDs are not the driver's."""
_FACTS = {"fields", "cuda", "cpu", "host", "boot", "btime", "cpus", "ticks", "page", "space",
          "said", "MemTotal:", "MemAvailable:"}  # fmt: skip
_HERTZ, _PAGE = 100, 4096
"""Values of nearly every Linux, for a machine without getconf."""
_LEAST = 0.05
"""The shortest span, in seconds, to report CPU use for: the kernel counts in hundredths."""

_SHELL = """\
trap '' USR1
exec 3<&0 </dev/null
{ trap 'left=LEASE' USR1; left=LEASE
  while [ "$left" -gt 0 ]; do sleep 1 & wait $!; left=$((left - 1)); done; kill 0
} >/dev/null 2>&1 3<&- &
clock=$!
{ while read -r line; do kill -USR1 "$clock"; done; kill 0; } <&3 >/dev/null 2>&1 &
LC_ALL=C; export LC_ALL
tell() { read -r line <"$2" && printf '%s %s\\n' "$1" "$line"; }
processes() {
  pids=
  while IFS=', ' read -r uuid pid used; do
    printf 'app %s %s %s\\n' "$uuid" "$pid" "$used"
    case $pid in ''|*[!0-9]*) continue;; esac
    case $pids, in *,$pid,*) continue;; esac
    tell stat "/proc/$pid/stat" 2>/dev/null && pids=$pids,$pid
  done
  [ -z "$pids" ] || ps -ww -o pid= -o ruser:32= -o args= -p "${pids#,}" |
    while read -r line; do printf 'ps %s\\n' "$line"; done
}
round() {
  tell uptime /proc/uptime; tell cpu /proc/stat
  while read -r name value unit; do
    case $name in MemTotal:|MemAvailable:) echo "mem $name $value";; esac
  done </proc/meminfo
  nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits |
    processes
  echo apps
}
fields=FIELDS
nvidia-smi --query-gpu=$fields --format=csv >/dev/null 2>&1 || fields=FEWER
tell host /proc/sys/kernel/hostname
tell boot /proc/sys/kernel/random/boot_id
while read -r name value rest; do [ $name != btime ] || echo "btime $value"; done </proc/stat
echo "cpus $(getconf _NPROCESSORS_ONLN)"
echo "ticks $(getconf CLK_TCK)"
echo "page $(getconf PAGESIZE)"
echo "space $(readlink /proc/self/ns/pid)"
nvidia-smi 2>/dev/null | while read -r line; do
  case $line in *'CUDA Version: '*) line=${line#*CUDA Version: }; echo "cuda ${line%% *}";; esac
done
echo "fields $fields"
last=999999
nvidia-smi --query-gpu=$fields --format=csv,noheader,nounits AGAIN 2>&1 | {
  while IFS= read -r line; do
    index=${line%%,*}
    case $index in ''|*[!0-9]*) printf 'said %s\\n' "$line"; continue;; esac
    [ "$index" -gt "$last" ] || { round | tr '\\n' '\\036'; echo; }
    last=$index
    printf 'gpu %s\\n' "$line"
  done; }
echo end
kill 0
"""


def smi_text(interval: float | None, lease: float = LEASE) -> bytes:
    """Return the script for /bin/sh: a round every `interval` seconds, or only one.

    It ends with its input, or when nothing has come on that for `lease` seconds: a cut network
    cannot be noticed there in any other way.
    """
    again = "" if interval is None else f"-lms {max(1, round(interval * 1000))}"
    text = _SHELL.replace("FIELDS", ",".join(FIELDS)).replace("FEWER", ",".join(FEWER_FIELDS))
    return text.replace("AGAIN", again).replace("LEASE", f"{lease:.0f}").encode()


class SmiReader:
    """Makes Frames of the script's lines, as an Assembler does of an agent's."""

    def __init__(self, interval: float | None, asked: str | None = None) -> None:
        """`interval`: seconds between rounds; `asked`: the name that was given with -H."""
        self._interval, self._asked = interval, asked
        self._facts: dict[str, str] = {}
        """The last record of each kind that occurs once."""
        self._rows: list[list[str]] = []
        """Rows of GPUs in this round; the next three are about processes."""
        self._apps: list[list[str]] = []
        self._stats: dict[int, Stat] = {}
        self._owners: dict[int, tuple[str, str]] = {}
        self._kept = 0
        """Characters since the last Frame."""
        self._before: Counters | None = None
        self._refused: deque[Reply] = deque(maxlen=_MOST_REFUSED)

    def refuse(self, data: bytes) -> None:
        """Have a request refused: nothing there can answer it."""
        request = decode_request(data)
        if isinstance(request, AnsweredRequest):
            self._refused.append(Reply(request=request.id, error=REFUSED))

    def read(self, line: bytes) -> Frame | Reply | None:
        """Return what a line completes: a Frame, a Reply, or nothing yet. SourceError."""
        frame = None
        for record in line.decode("utf-8", "replace").rstrip("\n").split(_SEPARATOR):
            self._kept += len(record)
            kind, _, text = record[:_LONGEST].partition(" ")
            frame = self._take(kind, text) or frame
            self._check_size()
        if frame is None and self._refused:
            return self._refused.popleft()
        return frame

    def _take(self, kind: str, text: str) -> Frame | None:
        if kind == "mem":
            kind, _, text = text.partition(" ")
        if kind == "uptime":
            return self._begin(text)
        if kind == "gpu":
            return self._add_gpu(text.split(", "))
        if kind == "end":
            said = printable(self._facts.get("said", "it has said nothing"), 200)
            raise SourceError(f"nvidia-smi has ended there: {said}")
        if kind == "app":
            self._apps.append(text.split(" "))
        elif kind == "stat" and (stat := stat_of(text)) is not None:
            self._stats[stat[0]] = stat[1]
        elif kind == "ps":
            pid, user, command = [*text.split(None, 2), "", "", ""][:3]
            self._owners[whole(pid) or 0] = (user, command)
        elif kind in _FACTS:
            self._facts[kind] = text
        return None

    def _check_size(self) -> None:
        """Raise SourceError for a round that is longer than any machine's."""
        rows = max(map(len, (self._apps, self._stats, self._owners)))
        if rows > MAX_PROCESSES or self._kept > _MOST_KEPT:
            raise SourceError("nvidia-smi tells of more processes there than a machine has")

    def _begin(self, uptime: str) -> Frame | None:
        """Begin a round; return the last one's Frame if it has not ended, as when a GPU is lost."""
        frame = self._frame() if self._rows else None
        self._facts["uptime"] = uptime
        return frame

    def _add_gpu(self, values: list[str]) -> Frame | None:
        self._rows.append(values)
        count = whole(values[1]) if len(values) > 1 else None
        if len(self._rows) > MAX_GPUS:
            raise SourceError("nvidia-smi tells of more GPUs there than a machine has")
        return self._frame() if count is None or len(self._rows) >= count else None

    def _frame(self) -> Frame:
        """Return the Frame of this round, and make room for the next."""
        names = self._facts.get("fields", "").split(",")
        rows = [dict(zip(names, row, strict=False)) for row in self._rows]
        now = counters_of(self._facts.get("uptime", ""), self._facts.get("cpu", ""), self._stats)
        processes = [process for app in self._apps if (process := self._process(app, now))]
        held: defaultdict[str | None, list[int | None]] = defaultdict(list)
        for process in processes:
            held[process.gpu_uuid].append(process.gpu_memory)
        frame = Frame(
            host=self._host(now),
            time=self._time(number(self._facts.get("uptime", "").partition(" ")[0]) or 0.0),
            interval=self._interval,
            driver_version=rows[0].get("driver_version"),
            cuda_version=self._facts.get("cuda"),
            gpus=tuple(self._gpu(row, held) for row in rows if whole(row.get("index")) is not None),
            processes=tuple(processes),
        )
        self._before = now
        self._rows, self._apps, self._stats, self._owners = [], [], {}, {}
        self._kept = 0
        return harmless(frame)

    def _time(self, uptime: float) -> float:
        """Return seconds since the epoch, from seconds since the boot."""
        return round((whole(self._facts.get("btime")) or 0) + uptime, 2)

    @property
    def _nested(self) -> bool:
        return self._facts.get("space") != _FIRST_NAMESPACE

    def _host(self, now: Counters | None) -> Host:
        total, left = (whole(self._facts.get(f"Mem{name}:")) for name in ("Total", "Available"))
        return Host(
            name=self._facts.get("host", ""),
            asked=self._asked,
            boot_id=self._facts.get("boot"),
            cpu=host_cpu(self._before, now) if self._before and now else None,
            cpu_count=whole(self._facts.get("cpus")),
            memory_total=total and total * 1024,
            memory_used=None if total is None or left is None else (total - left) * 1024,
            nested=self._nested,
        )

    def _gpu(self, row: dict[str, str], held: Mapping[str | None, Sequence[int | None]]) -> Gpu:
        """Return a GPU; `held` is what its processes hold, by its UUID. In a container they are not
        all known: only our own are seen."""
        gpu, are_listed = gpu_of(row), not self._nested
        return replace(
            gpu,
            processes_known=are_listed,
            own_namespace_only=not are_listed,
            memory_unaccounted=unaccounted(gpu.memory_used, held.get(gpu.uuid, ()), are_listed),
        )

    def _process(self, app: Sequence[str], now: Counters | None) -> Process | None:
        """Return a process on a GPU. No more is read in a container: its PID may be another's."""
        uuid, pid, held = [*app, "", "", ""][:3]
        if whole(pid) is None or not uuid.startswith(("GPU-", "MIG-")):
            return None
        memory = number(held)
        process = Process(
            pid=int(pid),
            gpu_uuid=uuid,
            gpu_memory=memory if memory is None else round(memory * MIB),
        )
        stat = self._stats.get(process.pid)
        if stat is None or self._nested:
            return replace(process, elsewhere=True)
        user, command = self._owners.get(process.pid, (None, None))
        hertz = whole(self._facts.get("ticks")) or _HERTZ
        return replace(
            process,
            start_time=self._time(stat.start_ticks / hertz),
            user=user,
            command=command,
            cpu=self._cpu(process.pid, stat, now, hertz),
            rss=stat.pages * (whole(self._facts.get("page")) or _PAGE),
            state=stat.state,
            parent=stat.parent,
            threads=stat.threads,
        )

    def _cpu(self, pid: int, stat: Stat, now: Counters | None, hertz: int) -> float | None:
        """Return how many cores it used since the round before."""
        if self._before is None or now is None or now.uptime - self._before.uptime < _LEAST:
            return None
        before = self._before.processes.get(pid)
        if before is None or before.start_ticks != stat.start_ticks:
            return None
        ticks = max(0, stat.cpu_ticks - before.cpu_ticks)
        return round(ticks / hertz / (now.uptime - self._before.uptime), 4)
