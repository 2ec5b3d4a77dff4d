"""Every word on the screen and its meaning, for the help: most are explained in the manual."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.manual import table_below
from gputop.model.fleet.host_summary import LAMPS
from gputop.model.health import activity, free
from gputop.model.health.throttle import THROTTLE_REASONS
from gputop.model.metrics.gpu import GPU
from gputop.model.metrics.process import COLUMNS
from gputop.tui.glyphs import GlyphSet
from gputop.tui.panes.fleet import lamp_sign

Definitions = Iterable[tuple[str, str]]


def sections(glyphs: GlyphSet) -> Iterable[tuple[str, Definitions]]:
    """Yield the title and the definitions of each section."""
    yield "Signs", _signs(glyphs)
    yield "GPUs", table_below("screen", "GPUs")
    yield "Hosts, where several are watched", [*_lamps(glyphs), *table_below("fleet", "Its words")]
    yield "Why a GPU is not free", free.WORDS
    after = f"after {glyphs.warning} on a GPU; H says more"
    yield f"Findings, {after}", table_below("screen", "Findings")
    window = f"{activity.WINDOW:.0f} s"
    yield f"What a GPU is doing, over {window}: the first that fits", activity.WORDS
    reasons = [(reason.word, reason.meaning) for reason in THROTTLE_REASONS.values()]
    yield "What holds the clocks back", reasons
    yield "Processes", table_below("screen", "Processes")
    yield "Mapping", table_below("screen", "The mapping")
    yield "Columns of processes", [(metric.label, metric.help) for metric in COLUMNS.values()]
    yield "Values of GPUs", [(metric.label, metric.help) for metric in GPU.values()]


def _signs(glyphs: GlyphSet) -> Definitions:
    yield "0", "measured, and nothing"
    yield glyphs.not_available, "not available, or no sample in this interval"
    yield glyphs.pending, "no sample yet"
    yield f"{glyphs.stale} 3s, stale", "the GPU does not answer; its values are this old"
    yield (
        f"{glyphs.stale} no answer, hung",
        "it has not answered for this long; no value is current",
    )
    yield f"{glyphs.warning} HOT", "the worst finding on the GPU"
    yield glyphs.cursor, "the selected row of the pane that has the focus"
    yield glyphs.separator, "the selected row of the other pane"
    yield glyphs.tag, "a tagged process"
    yield glyphs.mark, "marked with W: you are notified when it is free, or has ended"


def _lamps(glyphs: GlyphSet) -> Definitions:
    for kind, meaning in LAMPS.items():
        yield lamp_sign(kind, glyphs), f"a GPU: {meaning}"
