"""For how long no work was seen; samples miss what is between them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from gputop.agent.gpu.lists import Utilization

IdleKey = tuple[int, int, float | None]
"""Index of the GPU, pid and start time."""


class IdleTimes:
    """Remembers when GPUs and processes were last seen at work.

    `at` is when the GPU answered (monotonic), so that nothing grows while it does not.
    """

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._latest: dict[Hashable, float] = {}
        self._sampled: set[int] = set()

    def of_gpu(self, index: int, utilization: float | None, at: float) -> float | None:
        """Seconds without a sample of work; None where that is not known."""
        return None if utilization is None else self._idle(index, utilization > 0, at)

    def of_process(
        self,
        key: IdleKey,
        samples: Mapping[int, Utilization] | None,
        utilization: float | None,
        at: float,
    ) -> float | None:
        """Seconds without a sample above 0; None where the driver takes none.

        Who does nothing has no sample. Where nobody ever had one although the GPU works, samples
        say nothing, and everybody there may be at work.
        """
        if samples is None:
            return None
        sample = samples.get(key[1])
        if samples:
            self._sampled.add(key[0])
        if sample is not None and sample.is_busy:
            self._latest[key] = at
            return 0.0
        return self._idle(key, bool(utilization) and key[0] not in self._sampled, at)

    def end_cycle(self) -> None:
        """Forget those that were not asked about."""
        self._since, self._latest = self._latest, {}

    def _idle(self, key: Hashable, busy: bool, at: float) -> float:
        since = at if busy else self._since.get(key, at)
        self._latest[key] = since
        return round(at - since, 1)
