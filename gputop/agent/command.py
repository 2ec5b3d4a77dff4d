"""`gputop agent`: what a gputop starts to have a machine read."""

from __future__ import annotations

from gputop.errors import UsageError

_PREVIEW = "--preview"


def main(words: list[str]) -> int:
    """With --once one frame, else a frame every --interval SEC (1), until told to stop; with
    --preview there is a Preview before the first."""
    from gputop.agent.serve import serve, serve_once

    if words == ["--once"]:
        serve_once()
    serve(_interval([word for word in words if word != _PREVIEW]), preview=_PREVIEW in words)
    return 0


def _interval(words: list[str]) -> float:
    from gputop.model.protocol import clamp_interval

    try:
        option, seconds = words or ["--interval", "1"]
        if option == "--interval":
            return clamp_interval(float(seconds))
    except ValueError:
        pass
    raise UsageError(f"gputop agent takes --once or --interval SEC, not {' '.join(words)!r}")
