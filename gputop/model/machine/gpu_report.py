"""What an exporter reports of a GPU, where no agent of gputop has read the machine."""

import msgspec

from gputop.model.machine.finding import Finding


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a GPU by report alone."""

    free: bool | None = None
    """Whether a new job could have it; None if the exporter cannot tell either."""
    reason: str = ""
    """Why it is not free, or why that is not known: the code of an objection
    (`model.health.free`), or empty."""
    users: tuple[str, ...] | None = None
    """Who computes on it, most processes first; None if the exporter does not report users.
    Names in parentheses stand for users that are not told apart."""
    jobs: tuple[str, ...] = ()
    """The jobs on it: `slurm 4711 (alice)`."""
    findings: tuple[Finding, ...] | None = None
    """What needs attention; None if the exporter reports none."""
