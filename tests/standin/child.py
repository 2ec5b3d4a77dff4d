"""gputop where nothing is installed, as `python -I -S -B child.py WHAT`, by any Python.

codec    lines are messages as Python writes them, then, after an empty line, requests in JSON;
         prints the JSON of the messages, and the requests as Python writes them
agent    takes the path of pynvml and a command line, and runs the agent with what follows `agent`
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

STANDIN = "gputop.sources.ssh.standin"


def stand_in() -> None:
    """Have the stand-ins under the names of what they stand in for."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    msgspec = importlib.import_module(STANDIN)
    psutil = importlib.import_module(f"{STANDIN}.psutil")
    sys.modules.update(
        {
            "msgspec": msgspec,
            "msgspec.json": msgspec.json,
            "msgspec.structs": msgspec.structs,
            "psutil": psutil,
        }
    )


def names() -> dict[str, Any]:
    """Everything that a message may be written with."""
    importlib.import_module("gputop.protocol.messages")
    known = {"nan": math.nan, "inf": math.inf}
    for name, module in list(sys.modules.items()):
        if name.startswith(("gputop.model", "gputop.protocol")):
            known.update(vars(module))
    return known


def codec() -> None:
    """See above."""
    from gputop.protocol.codec import decode_request, encode

    known, lines = names(), iter(sys.stdin.buffer)
    for line in iter(lambda: next(lines), b"\n"):
        print(encode(eval(line, known)).decode())
    for line in lines:
        print(ascii(decode_request(line)))


def agent(words: list[str]) -> None:
    """See above."""
    spec = importlib.util.spec_from_file_location("pynvml", words[0])
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml"] = module
    spec.loader.exec_module(module)
    from gputop.agent.serve import main

    main(words[words.index("agent") + 1 :])


def main(what: str, words: list[str]) -> None:
    """Do that."""
    stand_in()
    if what == "agent":
        agent(words)
    else:
        codec()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
