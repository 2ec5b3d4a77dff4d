"""The machines of a cluster, of which the server told: a line each."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.fleet.cluster import ClusterNode
from gputop.model.machine.text import MISSING, duration, percent, size
from gputop.tui.panes.columns import Column
from gputop.tui.panes.gpu_cells import load_role, metered, value
from gputop.tui.panes.gpu_who import names
from gputop.tui.panes.lines import Piece
from gputop.tui.panes.machine_table import MachineTable

_LATE = 120.0
"""Seconds from which on values are called old: scrapes are a minute apart at most places."""
DOWN = "down: its exporter does not answer"


class NodeTable(MachineTable[ClusterNode]):
    """A row a machine: its GPUs, who is there, whether it needs attention; or that it is down."""

    def sentence(self, node: ClusterNode) -> Piece | None:
        return None if node.up else (f"{self.glyphs.warning} {DOWN}", "alarm")

    def columns(self) -> list[Column[ClusterNode]]:
        return [
            self.host_column(),
            Column("free", "FREE", 5, 7, 1, self._free),
            Column("utilization", "UTIL", 4, 24, 2, self._utilization),
            Column("memory", "GPU-MEM", 12, 28, 4, self._memory),
            Column("who", "WHO", 10, 32, 5, self._who, left=True),
            Column("age", "AGE", 5, 5, 3, self._age),
            Column("level", "ATTENTION", 9, 9, 1, self._level, left=True),
        ]

    def _free(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        total = (f"/{MISSING if node.gpus is None else node.gpus}", "quiet")
        if node.free is None:
            return [(self.glyphs.not_available, "quiet"), total]
        return [(f"{node.free}", "good" if node.free else "text"), total]

    def _utilization(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        share = node.utilization
        if share is None:
            return [value(MISSING, self.glyphs)]
        role = load_role(share, self._thresholds)
        return metered(share, role, [(f"{percent(share)}%", role)], width, 4, self.glyphs)

    def _memory(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        used, total = node.memory_used, node.memory_total
        if used is None or not total:
            return [value(MISSING, self.glyphs)]
        share = min(1.0, used / total)
        role = load_role(share, self._thresholds)
        number = [(size(int(used)), role), (f"/{size(int(total))}", "quiet")]
        return metered(share, role, number, width, 12, self.glyphs)

    def _who(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        return names(node.users, 0, width, self.glyphs)

    def _age(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        if node.age is None:
            return [value(MISSING, self.glyphs)]
        role = "alarm" if node.age >= _LATE else "quiet"
        return [(duration(node.age), role)]

    def _level(self, node: ClusterNode, width: int) -> Sequence[Piece]:
        if node.level is None:
            return [("", "text")]
        return [(f"{self.glyphs.warning} {node.level}", node.level)]
