"""The answer to what a CUDA_VISIBLE_DEVICES value means."""

import msgspec

from gputop.model.entries import Entry
from gputop.model.enumeration import Certainty, Device
from gputop.model.readings import Reason


class Stop(msgspec.Struct, frozen=True):
    """The entry at which the list ended."""

    position: int
    """Counted from 0."""
    entry: str
    reason: Reason


class Hidden(msgspec.Struct, frozen=True):
    """A GPU or MIG device that the program does not see, and why, in one sentence."""

    device: Device
    reason: str


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """What a value means on a machine."""

    value: str | None
    """CUDA_VISIBLE_DEVICES; None: unset."""
    order: str | None
    """CUDA_DEVICE_ORDER; None: unset."""
    certainty: Certainty
    """Of the order; a value that is not `documented` may mean something else all the same."""
    because: str
    """One sentence for people: what the certainty rests on."""
    documented: bool = True
    """False: sources are silent or disagree on this value; show "not documented"."""
    visible: tuple[Device, ...] | None
    """The k-th is cuda:k; None: which GPU is which cannot be told.

    A MIG device has an `instance`; its other fields are those of its GPU.
    """
    visible_set: tuple[Device, ...] | None = None
    """Where only the set is known: its GPUs, in no order that means anything."""
    count: int | None
    """How many GPUs are visible, which may be known where `visible` is not."""
    reason: Reason | None = None
    """Why the result is not simply the list: the stop, unset, empty, a duplicate, MIG."""
    stopped_at: Stop | None = None
    entries: tuple[Entry, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    """The GPUs that surely stay hidden; empty where `visible` is None."""
