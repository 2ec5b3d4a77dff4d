"""Frames of a machine without an agent, from nvidia-smi and /proc.

A script for /bin/sh writes lines that `SmiReader` makes frames of. It needs sleep, and not procps;
without getconf, getent, readlink, timeout or tr less is known. A line is one or more records with a
record separator between them; a record is a word and its content:

    fields NAME,...     the values in each `gpu`, by nvidia-smi's names
    gpu VALUE, ...      the first of them begins a round, the `count`th ends it
    app UUID PID MIB    a process on a GPU
    stat TEXT           /proc/PID/stat of one of these
    user PID NAME       its real user: at first sight, after a change of its name, and now and then
    command PID TEXT    its command line, or the beginning of it: as often
    cpu, uptime, host, boot, btime, cpus, page, space, MemTotal:, MemAvailable:   of the machine
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
from gputop.model.machine.proc_stat import ProcStat
from gputop.model.machine.text import is_blank, printable
from gputop.protocol.assemble import MAX_GPUS, MAX_PROCESSES
from gputop.protocol.codec import decode_request
from gputop.protocol.harmless import harmless
from gputop.protocol.messages import AnsweredRequest, Reply
from gputop.sources.source import REFUSED
from gputop.sources.ssh.pacing import LEASE
from gputop.sources.ssh.smi_values import (
    FEWER_FIELDS,
    FIELDS,
    Counters,
    counters_of,
    gpu_of,
    host_cpu,
    mib,
    number,
    stat_of,
    whole,
)

WORDS = "neither gputop nor Python 3.9 is there: only nvidia-smi and /proc are read"
"""How a screen describes such a machine."""
_MOST_REFUSED = 1000
_MAX_RECORD_CHARS, _MOST_KEPT = 8192, 16 << 20
"""Characters that are read of a record, and of a round: the machine may belong to an attacker."""
_COMMAND = 4096
"""Bytes of a command line that are read: everybody chooses the length of his own."""
_COMMAND_TURNS = 60
"""The command line of a process that keeps its name is read once in this many rounds."""
SEPARATOR = "\x1e"
_FIRST_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: in another namespace PIDs are not the driver's."""
_FACTS = {"fields", "cuda", "cpu", "host", "boot", "btime", "cpus", "page", "space", "MemTotal:",
          "MemAvailable:"}  # fmt: skip
_MOST_SAID = 3
"""Lines in which nvidia-smi says why it ends, as in a mismatch of versions: the last are kept."""
_HERTZ = 100
"""USER_HZ of every Linux that NVIDIA has a driver for."""
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
LC_ALL=C; export LC_ALL; set -f
usual=$IFS separator=$(printf '\\036') end='
'
bounded() { timeout 1 "$@"; }
bounded sleep 0 2>/dev/null || bounded() { "$@"; }
say() { printf '%s\\036' "$1"; }
tell() { read -r line <"$2" && say "$1 $line"; }
set_user() {
  case $users in *"$end$1:"*) user=${users#*"$end$1:"}; user=${user%%"$end"*}; return;; esac
  user=$(bounded getent passwd "$1" 2>/dev/null); user=${user%%:*}
  [ -n "$user" ] || while IFS=: read -r name password uid rest; do
    [ "$uid" != "$1" ] || { user=$name; break; }
  done </etc/passwd
  user=${user:-$1} users=$users$1:${user:-$1}$end
}
owner_and_command() {
  user=
  while read -r name uid rest; do
    case $name in Uid:) set_user "$uid"; break;; esac
  done <"/proc/$1/status"
  say "user $1 $user"
  printf 'command %s ' "$1"
  bounded dd if="/proc/$1/cmdline" bs=COMMAND count=1 | tr '\\000\\012\\036' ' \\037\\037'
  echo
}
process() {
  line=; while IFS= read -r part; do line=$line$part; done <"/proc/$1/stat"
  name=${line#*\\(}; name=${name%\\)*}; pid=$1
  case $name in *"$separator"*) name='?';; esac
  set -- ${line##*\\)}
  [ $# -ge 22 ] || return
  say "stat $pid ($name) $*"
  here="$here$pid ${20} $name$end"
  case $before in *"$end$pid ${20} $name$end"*) [ $(((turn + pid) % TURNS)) = 0 ] || return;; esac
  owner_and_command "$pid"
}
processes() {
  pids=, here=$end IFS=$end
  for app in $(
    nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits
  ); do
    IFS=$usual rest=${app#*, }; pid=${rest%%, *}
    say "app ${app%%, *} $pid ${rest#*, }"
    case $pid in ''|0*|*[!0-9]*) continue;; esac
    case $pids in *,$pid,*) continue;; esac
    pids=$pids$pid,
    process "$pid" 2>/dev/null
  done
  IFS=$usual before=$here turn=$((turn + 1))
}
round() {
  tell uptime /proc/uptime; tell cpu /proc/stat
  while read -r name value unit; do
    case $name in MemTotal:|MemAvailable:) say "$name $value";; esac
  done </proc/meminfo
  processes
  echo
}
fields=FIELDS
nvidia-smi --query-gpu=$fields --format=csv >/dev/null 2>&1 || fields=FEWER
tell host /proc/sys/kernel/hostname
tell boot /proc/sys/kernel/random/boot_id
cpus=0
while read -r name value rest; do
  case $name in cpu[0-9]*) cpus=$((cpus + 1));; btime) say "btime $value";; esac
done </proc/stat
say "cpus $cpus"
say "page $(getconf PAGESIZE 2>/dev/null)"
say "space $(readlink /proc/self/ns/pid 2>/dev/null)"
nvidia-smi 2>/dev/null | while read -r line; do
  case $line in *'CUDA Version: '*) line=${line#*CUDA Version: }; echo "cuda ${line%% *}";; esac
done
echo "fields $fields"
last=999999 turn=0 users=$end before=
nvidia-smi --query-gpu=$fields --format=csv,noheader,nounits AGAIN 2>&1 | {
  while IFS= read -r gpu; do
    index=${gpu%%,*}
    case $index in ''|*[!0-9]*) printf 'said %s\\n' "$gpu"; continue;; esac
    [ "$index" -gt "$last" ] || round
    last=$index
    printf 'gpu %s\\n' "$gpu"
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
    text = text.replace("COMMAND", f"{_COMMAND}").replace("TURNS", f"{_COMMAND_TURNS}")
    return text.replace("AGAIN", again).replace("LEASE", f"{lease:.0f}").encode()


class SmiReader:
    """Makes Frames of the script's lines, as an Assembler does of an agent's."""

    def __init__(self, interval: float | None, requested_name: str | None = None) -> None:
        """`interval`: seconds between rounds; `requested_name`: the name that was given with -H."""
        self._interval, self._requested_name = interval, requested_name
        self._facts: dict[str, str] = {}
        """The last record of each kind that occurs once."""
        self._rows: list[list[str]] = []
        """Rows of GPUs in this round; the next four are about processes."""
        self._apps: list[list[str]] = []
        self._stats: dict[int, ProcStat] = {}
        self._users: dict[int, str] = {}
        self._commands: dict[int, str] = {}
        """By PID; these two are kept from round to round."""
        self._kept = 0
        """Characters since the last Frame."""
        self._before: Counters | None = None
        self._said: deque[str] = deque(maxlen=_MOST_SAID)
        self._refused: deque[Reply] = deque(maxlen=_MOST_REFUSED)

    def refuse(self, data: bytes) -> None:
        """Have a request refused: nothing there can answer it."""
        request = decode_request(data)
        if isinstance(request, AnsweredRequest):
            self._refused.append(Reply(request=request.id, error=REFUSED))

    def read(self, line: bytes) -> Frame | Reply | None:
        """Return what a line completes: a Frame, a Reply, or nothing yet. SourceError."""
        frame = None
        for record in line.decode("utf-8", "replace").rstrip("\n").split(SEPARATOR):
            self._kept += len(record)
            kind, _, text = record[:_MAX_RECORD_CHARS].partition(" ")
            frame = self._take(kind, text) or frame
            self._check_size()
        if frame is None and self._refused:
            return self._refused.popleft()
        return frame

    def _take(self, kind: str, text: str) -> Frame | None:
        if kind == "uptime":
            return self._begin(text)
        if kind == "gpu":
            return self._add_gpu(text.split(", "))
        if kind == "end":
            said = printable("; ".join(self._said) or "it printed nothing", 200)
            raise SourceError(f"nvidia-smi has ended there: {said}")
        if kind == "said" and not is_blank(text) and text not in self._said:
            self._said.append(text)
        elif kind == "app":
            self._apps.append(text.split(" "))
        elif kind == "stat" and (stat := stat_of(text)) is not None:
            self._stats[stat[0]] = stat[1]
        elif kind in ("user", "command"):
            pid, _, words = text.partition(" ")
            (self._users if kind == "user" else self._commands)[whole(pid) or 0] = words
        elif kind in _FACTS:
            self._facts[kind] = text
        return None

    def _check_size(self) -> None:
        """Raise SourceError for a round that is longer than any machine's."""
        rows = max(map(len, (self._apps, self._stats, self._users, self._commands)))
        if rows > MAX_PROCESSES or self._kept > _MOST_KEPT:
            raise SourceError("nvidia-smi there lists more processes than a machine can have")

    def _begin(self, uptime: str) -> Frame | None:
        """Begin a round; return the last one's Frame if it has not ended, as when a GPU is lost."""
        frame = self._frame() if self._rows else None
        self._facts["uptime"] = uptime
        return frame

    def _add_gpu(self, values: list[str]) -> Frame | None:
        self._rows.append(values)
        count = whole(values[1]) if len(values) > 1 else None
        if len(self._rows) > MAX_GPUS:
            raise SourceError("nvidia-smi there lists more GPUs than a machine can have")
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
        self._users, self._commands = (
            {pid: words for pid, words in kept.items() if pid in self._stats}
            for kept in (self._users, self._commands)
        )
        self._rows, self._apps, self._stats = [], [], {}
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
            requested_name=self._requested_name,
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
            listed="all" if are_listed else "ours",
            state="answers" if gpu.has_answered else "silent",
            memory_unaccounted=unaccounted(gpu.memory_used, held.get(gpu.uuid, ()), are_listed),
        )

    def _process(self, app: Sequence[str], now: Counters | None) -> Process | None:
        """Return a process on a GPU. No more is read in a container: its PID may be another's."""
        uuid, pid, held = [*app, "", "", ""][:3]
        if whole(pid) is None or not uuid.startswith(("GPU-", "MIG-")):
            return None
        process = Process(pid=int(pid), gpu_uuid=uuid, gpu_memory=mib(held))
        stat = self._stats.get(process.pid)
        if stat is None or self._nested:
            return replace(process, elsewhere=True)
        page = whole(self._facts.get("page"))
        return replace(
            process,
            start_ticks=stat.start_ticks,
            start_time=self._time(stat.start_ticks / _HERTZ),
            user=self._users.get(process.pid) or None,
            command=self._command(process.pid) or f"[{stat.name}]",
            cpu=self._cpu(process.pid, stat, now),
            rss=None if page is None else stat.pages * page,
            state=stat.state,
            parent=stat.parent,
            threads=stat.threads,
        )

    def _command(self, pid: int) -> str:
        """Return the command line; empty without one, and where it cannot be read."""
        text = self._commands.get(pid, "")
        is_cut = len(text.encode()) >= _COMMAND
        return f"{text} …" if is_cut else text.rstrip(" ")

    def _cpu(self, pid: int, stat: ProcStat, now: Counters | None) -> float | None:
        """Return how many cores it used since the round before."""
        if self._before is None or now is None or now.uptime - self._before.uptime < _LEAST:
            return None
        before = self._before.processes.get(pid)
        if before is None or before.start_ticks != stat.start_ticks:
            return None
        ticks = max(0, stat.cpu_ticks - before.cpu_ticks)
        return round(ticks / _HERTZ / (now.uptime - self._before.uptime), 4)
