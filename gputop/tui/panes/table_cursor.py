"""Which row of a table is selected, and which rows are in sight."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


class TableCursor:
    """A cursor that is bound to the key of a row and moves with it, and the rows in sight.

    `visible_rows` is how many rows fit. Rows are counted from 0.
    """

    def __init__(self) -> None:
        self.top = 0
        """The first row in sight."""
        self.index = 0
        """The selected row, or its old place while it is gone."""
        self._keys: Sequence[Hashable] = ()
        self._key: Hashable | None = None
        """The key of the selected row, which may not be among the current rows."""
        self._wheeled = False
        """Whether the wheel moved the cursor out of sight; the next key goes on from the cursor."""

    @property
    def is_there(self) -> bool:
        """Whether a row is selected and is among the current rows."""
        keys, index = self._keys, self.index
        return self._key is not None and index < len(keys) and keys[index] == self._key

    @property
    def has_chosen(self) -> bool:
        """Whether a row was selected, though it may be gone."""
        return self._key is not None

    @property
    def start(self) -> int:
        """The row that a key moves from."""
        return self.top if self._key is None else self.index

    def span(self, visible_rows: int) -> tuple[int, int, int]:
        """Return the first and last row in sight, counted from 1, and the number of all rows."""
        total = len(self._keys)
        return min(self.top + 1, total), min(self.top + visible_rows, total), total

    def show(self, keys: Sequence[Hashable], visible_rows: int) -> None:
        """Take other rows. The cursor stays on its row and never goes to another by itself: while
        its row is gone nothing is selected, and the next key continues from its old place."""
        self._keys = keys
        if self._key in keys:
            index = keys.index(self._key)
            if self._wheeled:
                self.index = index
            else:
                self.select(index, visible_rows)
        self.scroll(self.top, visible_rows)

    def fit(self, visible_rows: int) -> None:
        """Take another size; the selected row stays in sight."""
        if self.is_there:
            self.select(self.index, visible_rows)
        self.scroll(self.top, visible_rows)

    def select(self, index: int, visible_rows: int) -> None:
        """Select a row, or the nearest there is, and bring it into sight."""
        self.index = min(max(0, index), len(self._keys) - 1)
        self._key, self._wheeled = self._keys[self.index], False
        if visible_rows and not self.top <= self.index < self.top + visible_rows:
            below = self.index >= self.top + visible_rows
            self.scroll(self.index - visible_rows + 1 if below else self.index, visible_rows)

    def scroll(self, top: int, visible_rows: int) -> None:
        """Bring a row to the top, as far as the rows go."""
        self.top = min(max(0, top), max(0, len(self._keys) - visible_rows))

    def wheel(self, step: int, visible_rows: int) -> None:
        """Scroll by `step` rows; the cursor stays on its row."""
        self.scroll(self.top + step, visible_rows)
        self._wheeled = not self.top <= self.index < self.top + visible_rows

    def drop(self) -> bool:
        """Select nothing; return whether a row was selected."""
        was_there, self._key = self.is_there, None
        return was_there
