"""The processes of a GPU, or of a MIG device of it, on its page."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from gputop.model.machine.gpu import Gpu
from gputop.model.machine.limits import no_process_text
from gputop.model.processes import process_rows
from gputop.model.processes.views import View, ViewRow, unaccounted_rows
from gputop.tui.panes.columns import heading, row
from gputop.tui.panes.lines import StyledLine
from gputop.tui.panes.paper import Paper
from gputop.tui.panes.process_columns import ProcessColumns
from gputop.tui.snapshot import Snapshot

_COLUMNS = (
    "cuda", "pid", "user", "type", "gpu_memory", "sm_utilization", "cpu", "idle_for", "age",
)  # fmt: skip


def processes(
    paper: Paper,
    shown: Snapshot,
    gpu: Gpu,
    idle_after: float,
    instance: tuple[int, int] | None = None,
) -> Iterator[StyledLine]:
    """Yield a table of the processes on a GPU, with the MIG device of each if it has some, or of
    those on one MIG device; then the memory of the GPU that belongs to none."""
    view = View(gpu=gpu.key, instance=instance)
    rows = process_rows.rows(shown.frame, shown.names, idle_after)
    rows = [row for row in rows if view.holds(row)]
    rows = process_rows.by_value(rows, [row.process.gpu_memory for row in rows], descending=True)
    columns = ProcessColumns(("gpu", *_COLUMNS) if gpu.mig and instance is None else _COLUMNS)
    columns.show_rows(rows, shown.frame.time)
    fitted = columns.fitted(paper.width - 1, 1, paper.glyphs)
    if rows:
        yield [(" ", "quiet"), *heading(fitted, 1)]
    for process_row in rows:
        cells = row(fitted, ViewRow(process_row, None), 1, paper.glyphs.ellipsis)
        yield [("  ", "text"), *cells]
    unaccounted = [] if instance else [
        line for line in unaccounted_rows(shown.frame) if view.holds(line.row)
    ]  # fmt: skip
    for view_row in unaccounted:
        yield [("  ", "text"), *columns.across(view_row, paper.width - 3, "notice")]
    if not rows and not unaccounted:
        report = shown.frame.report(gpu)
        reports = {} if report is None else {gpu.key: report}
        alone = replace(shown.frame, gpus=(gpu,), reports=reports)
        yield from paper.quiet("none" if gpu.listed == "all" else no_process_text(alone))
