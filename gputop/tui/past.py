"""What the keys do to the time that the screen shows."""

from __future__ import annotations

from collections.abc import Callable

from gputop.errors import GputopError
from gputop.model.machine.text import duration
from gputop.sources.past import Moment
from gputop.tui.machine import Picture
from gputop.tui.machine_view import MachineView
from gputop.tui.playback import Playback


class PastControl:
    """Goes back in what is remembered of the machine that is open, and on to now.

    What moves returns what there is to say of it.
    """

    moment: Moment = "past"

    def __init__(self, view: Callable[[], MachineView | None]) -> None:
        self._view = view
        self._playback: Playback | None = None

    @property
    def is_back(self) -> bool:
        """Whether another time than now is shown."""
        return self._playback is not None

    @property
    def words(self) -> str:
        """What the heading says of the time that is shown; nothing of now."""
        view, playback = self._view(), self._playback
        if playback is None or view is None or view.machine.now is None:
            return ""
        return f"PAST -{duration(view.machine.now - playback.time)}"

    def step(self, count: int) -> str:
        """Go by frames, back where `count` is below 0."""
        return self._move(lambda playback: playback.step(count), is_on=count > 0)

    def skip(self, seconds: float) -> str:
        """Go by a time, and by one frame at least."""
        return self._move(lambda playback: playback.skip(seconds), is_on=seconds > 0)

    def forget(self) -> None:
        """Take in that the picture is that of now."""
        self._playback = None

    def _move(self, move: Callable[[Playback], object], is_on: bool = False) -> str:
        view = self._view()
        if view is None or view.machine.picture is None:
            return ""
        if self._playback is None and is_on:
            return "this is now"
        try:
            playback = self._playback or self._begin(view)
            if playback is None:
                return "nothing is in memory to go back to"
            move(playback)
        except GputopError as error:
            return str(error)
        self._show(view, playback)
        if not self.is_back and not is_on:
            return "nothing older is in memory"
        return playback.note

    def _begin(self, view: MachineView) -> Playback | None:
        """Return what goes on from the picture; None where nothing is remembered."""
        past, picture = view.machine.past, view.machine.picture
        if past is None or picture is None or not past.times:
            return None
        playback = Playback(past, view.machine.history)
        playback.go(picture.frame.time)
        return playback

    def _show(self, view: MachineView, playback: Playback) -> None:
        """Show what was come to; the newest frame is that of now."""
        frame = playback.frame
        if playback.is_at_end or frame is None or frame.time == view.machine.now:
            playback.note = ""
            self.forget()
            view.thaw()
        else:
            self._playback = playback
            view.hold(Picture(frame, playback.history, self.moment))
