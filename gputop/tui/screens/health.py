"""What of the GPUs needs a person, with what to do; read only: nothing is run from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.health import Finding, findings, in_alarm
from gputop.model.text import duration, short_name
from gputop.tui.screens.pagescreen import PageScreen
from gputop.tui.widgets.page import Line, Page


class HealthScreen(PageScreen[None]):
    """The findings of every GPU, as of the last frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,H,backspace", "leave", "Back", tooltip="From the health to the table",
                id="health.leave", key_display="Esc", group=Binding.Group("GPUs")),
    ]  # fmt: skip

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame

    def show_frame(self, frame: Frame) -> None:
        """Another frame."""
        self._frame = frame
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        page = self.query_one(Page)
        page.show_lines(list(_lines(page, self._frame)))


def _lines(page: Page, frame: Frame) -> Iterator[Line]:
    alarms, count = len(in_alarm(frame)), len(frame.gpus)
    gpus = f"{count} GPU{'s' * (count != 1)}"
    yield []
    yield [(" Health", "heading")]
    told = [(gpu, findings(frame, gpu)) for gpu in frame.gpus]
    if alarms:
        words = f"{alarms} of {gpus} need{'s' * (alarms == 1)} a person."
        yield from page.wrapped(words, 2, "alarm")
    elif any(found for _, found in told):
        yield from page.wrapped("Nothing is broken; some things are worth knowing.")
    else:
        yield from page.wrapped(f"All is well: nothing was found on {gpus}.", 2, "good")
    if all(gpu.health is None or gpu.health.xids is None for gpu in frame.gpus):
        yield from page.wrapped("The driver reports no XIDs here (dmesg | grep Xid).", 2, "quiet")
    for gpu, found in told:
        if found or gpu.stale_for is not None:
            yield from _of_gpu(page, gpu, found)


def _of_gpu(page: Page, gpu: Gpu, found: tuple[Finding, ...]) -> Iterator[Line]:
    yield []
    yield [
        (f" GPU {gpu.index}  {short_name(gpu.name)}  {gpu.pci_bus_id or ''}".rstrip(), "heading")
    ]
    if gpu.stale_for is not None:
        old = f"It has not answered for {duration(gpu.stale_for)}; this was so before."
        yield from page.wrapped(old, 4, "alarm")
    for finding in found:
        for first, line in enumerate(page.wrapped(finding.text, 4)):
            mark = "    " if first else f"  {page.glyphs.warning} "
            yield [(mark, finding.level), *line[1:]]
        yield from page.wrapped(finding.advice, 6, "quiet")
