"""Takes msgspec's place in an agent that is carried to a machine where its compiled part does not
fit: another minor version of Python, libc or architecture.

It has only what the agent uses of msgspec, and a message has the same JSON either way. It imports
nothing of gputop but itself.
"""

# ruff: noqa: F401 - they are used by msgspec's name
from gputop.sources.ssh.standin import json, structs
from gputop.sources.ssh.standin.structs import Meta, MsgspecError, Struct
