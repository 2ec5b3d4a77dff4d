"""Which web pages may read what a server of gputop's answers: those that it served itself.

A browser says in `Origin` which page asks for a web socket, and in `Host` the name by which it
asks. The owner of a page's name can make it lead to this machine (DNS rebinding); then both agree,
but the name is not ours. An address cannot be made to lead elsewhere.
"""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether a page of this `Origin` was served by whoever `Host` names."""
    scheme, _, where = origin.lower().partition("://")
    return scheme in ("http", "https") and where == host.lower() != ""


def is_own_name(host: str, listen: str) -> bool:
    """Return whether a `Host` is an address, or a name of this machine; `listen`: what the user
    said to listen on."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    node = os.uname().nodename.lower()
    if name in {listen.lower(), node, node.partition(".")[0], "localhost"} - {""}:
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False
