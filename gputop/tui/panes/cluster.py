"""The parts of the screen of a cluster: facts, sums, columns of hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.model.fleet.cluster import Cluster, ClusterNode, ClusterState, ModelCount
from gputop.model.machine.text import MISSING, duration, percent, plural, short_name, size
from gputop.settings import Thresholds
from gputop.tui.panes.columns import Column, crop_or_pad, cut
from gputop.tui.panes.gpu_cells import bar, load_piece, load_role, metered, value
from gputop.tui.panes.gpu_who import names
from gputop.tui.panes.hosts import Facts
from gputop.tui.panes.lines import Lines, Piece, StyledLine
from gputop.tui.themes import LEVEL_ROLES

_QUANTILES = ("10th percentile ", "median ", "90th ")
"""The words before `Cluster.quantiles`, in their order."""
MODELS = 3
"""The most lines that models take."""
_MEMORY_BAR = 12
_LATE = 120.0
"""From this age on, in seconds, values are late: most sites scrape once a minute."""


def cluster_facts(cluster: Cluster | None, server: str, width: int) -> Facts:
    """Yield the known facts of a cluster, the most important first, for a line of `width` cells;
    before there are any, the address of its server."""
    server = Lines.glyphs.text(cut(server, max(12, width // 4), Lines.glyphs.ellipsis))
    if cluster is None:
        yield [(server, "text")]
        return
    free = "free unknown" if cluster.free is None else f"{cluster.free:,} free"
    yield [(f"{_count(cluster.gpus, 'GPU')}, ", "text"), (free, _free_role(cluster.free))]
    hosts: list[Piece] = [(_count(cluster.hosts, "host"), "text")]
    if cluster.down:
        hosts.append((f", {cluster.down:,} down", "alarm"))
    yield hosts
    if cluster.alarms:
        yield [(_count(cluster.alarms, "host") + " in alarm", "alarm")]
    if cluster.users is not None:
        yield [(_count(cluster.users, "user"), "text")]
    yield [(server, "quiet")]
    yield [(cluster.exporter, "quiet")]


def cluster_note(state_: ClusterState) -> Piece:
    """Return why no newer values arrive."""
    old = "" if state_.age is None else f" (what is shown is {duration(state_.age)} old)"
    words = Lines.glyphs.text(f"{state_.error}{old}")
    return f" {Lines.glyphs.warning} {words}", "alarm"


def cluster_sums(cluster: Cluster | None, thresholds: Thresholds) -> list[StyledLine]:
    """Return a line for each of the most frequent models, one for the utilization of all GPUs, and
    one if no host has a free GPU; none before anything is free."""
    if cluster is None:
        return []
    lines = [*_models(cluster.models), _utilization(cluster, thresholds)]
    if cluster.free == 0:
        lines.append([(" no host has a free GPU", "notice")])
    return lines


def _models(models: Sequence[ModelCount]) -> Iterator[StyledLine]:
    shown = models if len(models) <= MODELS else models[: MODELS - 1]
    for model in shown:
        yield _model(short_name(model.model), model.gpus, model.free)
    if rest := models[len(shown) :]:
        free = [model.free for model in rest if model.free is not None]
        gpus = sum(model.gpus for model in rest)
        yield _model(f"{len(rest)} other models", gpus, sum(free) if free else None)


def _model(name: str, gpus: int, free: int | None) -> StyledLine:
    glyphs = Lines.glyphs
    label = crop_or_pad([(glyphs.text(name), "text")], 22, glyphs.ellipsis)
    count = crop_or_pad([(f"{gpus:,}", "text")], 8, "", left=False)
    words = "free unknown" if free is None else f"{free:,} free"
    share = None if free is None or not gpus else min(1.0, max(0.0, 1 - free / gpus))
    used = bar(share, _MEMORY_BAR, "load")
    return [(" ", "text"), *label, *count, ("  ", "text"), *used, (" ", "text"),
            (words, _free_role(free))]  # fmt: skip


def _utilization(cluster: Cluster, thresholds: Thresholds) -> StyledLine:
    pieces: StyledLine = [(" utilization: ", "quiet")]
    if cluster.quantiles is None:
        return [*pieces, (Lines.glyphs.not_available, "quiet")]
    for number, (words, share) in enumerate(zip(_QUANTILES, cluster.quantiles, strict=True)):
        pieces.append((f"{', ' if number else ''}{words}", "quiet"))
        pieces.append((f"{percent(share)}%", load_role(share, thresholds)))
    return pieces


def _free_role(free: int | None) -> str:
    return "quiet" if free is None else "good" if free else "text"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {plural(number, noun)}"


class NodeColumns:
    """The columns of a cluster: the GPUs of a host, its users, what needs attention."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self.all = (
            Column("free", "FREE", 5, 7, 1, self._free),
            Column("utilization", "UTIL", 4, 24, 2, self._utilization),
            Column("memory", "GPU-MEM", 12, 28, 4, self._memory),
            Column("who", "WHO", 10, 32, 5, self._who, left=True),
            Column("age", "AGE", 5, 6, 3, self._age),
            Column("level", "ATTENTION", 9, 9, 1, self._level, left=True),
        )

    def sentence(self, node: ClusterNode) -> Piece | None:
        """Return why a host has no values; None if it has."""
        return (f"{Lines.glyphs.warning} {node.problem}", "alarm") if node.problem else None

    def _free(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        total = f"/{Lines.glyphs.not_available if node.gpus is None else node.gpus}", "quiet"
        if node.free is None:
            return [(Lines.glyphs.not_available, "quiet"), total]
        return [(f"{node.free}", "good" if node.free else "text"), total]

    def _utilization(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        number = load_piece(node.utilization, self._thresholds)
        return metered(node.utilization, number[1], [number], width, 4)

    def _memory(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        used, total = node.memory_used, node.memory_total
        if used is None or not total:
            return [value(MISSING)]
        share = min(1.0, used / total)
        role = load_role(share, self._thresholds)
        number = [(size(int(used)), role), (f"/{size(int(total))}", "quiet")]
        return metered(share, role, number, width, 12)

    def _who(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        return names(node.users, 0, width)

    def _age(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        is_late = node.age is not None and node.age >= _LATE
        return [value(duration(node.age), "alarm" if is_late else "quiet")]

    def _level(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        if node.level is None:
            return [("", "text")]
        return [(f"{Lines.glyphs.warning} {node.level}", LEVEL_ROLES[node.level])]
