"""The variable in configuration files: Dockerfile, Compose, Kubernetes, systemd, JSON, TOML.

YAML is not parsed: its few forms of an environment are read line by line, and any line that could
mean something else counts as not understood.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from gputop.model.cuda.pasted.outcome import CONCERNED, UnclearError, UndecidedError, mentions

ConfigVariables = list[tuple[str, str]]
"""Names and values, in the order of the text; a name may occur several times."""
GPUS = ""
"""Stands in for the name of the setting that gives the container its GPUs."""

_PLAIN = re.compile(r"[1-9]?[0-9](?:,[0-9]{1,2})*|-1|(?:GPU|MIG)-[0-9a-zA-Z,/-]+|[A-Z_]+", re.ASCII)
_V = rf"[\"']?({'|'.join(CONCERNED)})[\"']?"
_MAP = re.compile(rf"\s*(?:-\s+)?{_V}\s*:(?:\s+(.*?))?\s*")
_ITEM = re.compile(rf"\s*-\s+(?:([\"'])({_V}=.*)\1|({_V}=.*?))\s*")
_NAMED = re.compile(rf"(\s*)(-\s+)?name:\s*{_V}\s*")
_ITS_VALUE = re.compile(r"(\s*)(-\s+)?value:\s*(.*?)\s*")
_FLOW = re.compile(rf"\s*-?\s*\{{\s*name:\s*{_V}\s*,\s*value:\s*(\"[^\"\\]*\"|'[^']*')\s*\}}\s*")
_PROCESS = re.compile(r"\s*(?:ENV\s+|Environment=)(.*?)\s*")


def read_config(text: str) -> ConfigVariables | None:
    """Return what a configuration sets; None if it is none. NotKnownError if a value is unclear."""
    for read in (_document, _environment, _yaml):
        variables = read(text)
        if variables is not None:
            return variables
    return None


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]


def _filled(value: str) -> str:
    if re.search(r"\$|\{\{", value):
        raise UndecidedError("its value is put in from elsewhere")
    return value


# --- JSON and TOML -------------------------------------------------------------------------------


def _document(text: str) -> ConfigVariables | None:
    """Read an object with the name as a key, or with name and value as in Kubernetes and ECS."""
    document = _json(text) or _toml(text)
    if document is None:
        return None
    variables = list(_walk(document, 0))
    if len(variables) < sum(text.count(name) for name in CONCERNED):
        raise UnclearError("gputop does not know what this does with the variable")
    return variables


def _json(text: str) -> Any:
    plain = re.sub(r",(\s*[}\]])", r"\1", re.sub(r"(?m)^[ \t]*//.*$", "", text)).strip().rstrip(",")
    if plain[:1] not in '{["':
        return None
    try:
        return json.loads(f"{{{plain}}}" if plain[:1] == '"' else plain)
    except (ValueError, RecursionError):
        return None


def _toml(text: str) -> Any:
    """Read TOML, but no single line without braces: that may be a mistake in a shell."""
    if not mentions(text) or ("\n" not in text.strip() and "{" not in text):
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _walk(value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if depth > 60:
        return
    if isinstance(value, dict):
        named = {key.lower(): inner for key, inner in value.items()}
        if named.get("name") in CONCERNED:
            yield named["name"], _scalar(named.get("value", "$"))
        for key, inner in value.items():
            if key in CONCERNED:
                yield key, _scalar(inner)
            else:
                yield from _walk(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, depth + 1)
            name, equals, text = inner.partition("=") if isinstance(inner, str) else ("", "", "")
            if equals and name in CONCERNED:
                yield name, _filled(text)


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UnclearError("its value is no text")
    return _filled(str(value))


# --- Dockerfile and systemd ----------------------------------------------------------------------


def _environment(text: str) -> ConfigVariables | None:
    """Read ENV NAME=VALUE ..., Environment="A=1" "B=2": the last counts, an empty one clears."""
    lines = _lines(re.sub(r"\\\n\s*", " ", text))
    if not any(re.match(r"\s*(?:(?:ENV|ARG)\s.*\b[A-Z]\w*[= ]|Environment=)", x) for x in lines):
        return None
    variables: ConfigVariables = []
    for line in lines:
        match = _PROCESS.fullmatch(line)
        if match is None:
            if mentions(line):
                raise UnclearError("gputop does not know what a line of this file does")
            if re.match(r"\s*EnvironmentFile=", line):
                raise UndecidedError("a file may set it as well (EnvironmentFile)")
        elif re.search(r"[$%]", match[1]):
            raise UndecidedError("a value is put into it from elsewhere")
        else:
            variables = variables + _pairs(match[1]) if match[1] else []
    return list(dict(variables).items())


def _pairs(words: str) -> ConfigVariables:
    try:
        parts = shlex.split(words)
    except ValueError:
        raise UnclearError("a quote is not closed") from None
    if len(parts) > 1 and "=" not in parts[0]:
        parts = [f"{parts[0]}={words.split(None, 1)[1]}"]
        if re.search(r"[\"'\\\s]", parts[0]):
            raise UnclearError("this ENV is not followed")
    pairs = (part.partition("=") for part in parts)
    return [(name, value) for name, equals, value in pairs if equals and name in CONCERNED]


# --- YAML ----------------------------------------------------------------------------------------


def _yaml(text: str) -> ConfigVariables | None:
    """Read NAME: VALUE, - NAME=VALUE, and - name: NAME with its value on a line beside it."""
    lines = _lines(text)
    if not any(form.fullmatch(line) for form in (_MAP, _ITEM, _NAMED, _FLOW) for line in lines):
        return None
    if len(lines) > 1 and not all(
        re.match(r"\s*(?:-|[\w./\"'-]+\s*:|---|\.\.\.|[\w\"'{\[])", line) for line in lines
    ):
        return None
    if any(re.search(r"nvidia\.com/(?:gpu|mig)\b.*:", line) for line in lines):
        raise UndecidedError(
            "which GPUs the pod gets is up to Kubernetes, and they count from 0 there"
        )
    variables = [_yaml_line(line, lines[max(0, number - 1) : number + 2][::-1])
                 for number, line in enumerate(lines) if mentions(line)]  # fmt: skip
    return variables + _compose_gpus(text)


def _yaml_line(line: str, beside: list[str]) -> tuple[str, str]:
    if flow := _FLOW.fullmatch(line):
        return flow[1], _filled(flow[2][1:-1])
    if named := _NAMED.fullmatch(line):
        return named[3], _filled(_value_beside(named, beside))
    if item := _ITEM.fullmatch(line):
        name, _, value = (item[2] or item[4]).partition("=")
        if re.search(r"[\"'\\]" if item[1] else r"[\s\"'\\\[{}\]#]", value):
            raise UnclearError("gputop does not know how YAML reads this value")
        return name, _filled(value)
    pair = _MAP.fullmatch(line)
    if pair is None:
        raise UnclearError("gputop does not know what a line of this YAML does")
    if not pair[2]:
        raise UndecidedError("the value is taken from where it is started")
    return pair[1], _filled(_yaml_scalar(pair[2]))


def _value_beside(named: re.Match[str], beside: list[str]) -> str:
    """Return the `value:` of the line after or before `name:`, at the same depth."""
    for line in beside:
        value = _ITS_VALUE.fullmatch(line)
        if value and len(named[1] + (named[2] or "")) == len(value[1] + (value[2] or "")):
            return _yaml_scalar(value[3])
    raise UndecidedError("its value is not in the text")


def _yaml_scalar(text: str) -> str:
    """Read a value of one line; UnclearError if YAML might read another."""
    match = re.fullmatch(r"(?:\"([^\"\\]*)\"|'([^']*)'|([^\"'#]*?))(?:\s+#.*)?", text.strip())
    if match is None or (match[3] is not None and not _PLAIN.fullmatch(_filled(match[3]))):
        raise UnclearError("gputop does not know how YAML reads this value: put it in quotes")
    return next(group for group in match.groups() if group is not None)


def _compose_gpus(text: str) -> ConfigVariables:
    ids = re.findall(r"device_ids:\s*(.*)", text)
    counts = re.findall(r"(?m)^[ \t]*(?:-[ \t]+)?count:[ \t]*(\S+)[ \t]*$", text)
    if len(ids) + len(counts) > 1 or len(re.findall(r"(?m)^[ \t]*environment:", text)) > 1:
        raise UndecidedError("it has several services, or several lists of GPUs")
    if ids:
        match = re.fullmatch(r"\[\s*((?:[\"'][\w-]+[\"']\s*,?\s*)+)\]\s*(?:#.*)?", ids[0])
        if match is None:
            raise UnclearError("device_ids in this form are not followed")
        return [(GPUS, ",".join(re.findall(r"[\w-]+", match[1])))]
    if counts and counts[0] != "all" and not counts[0].isdecimal():
        raise UnclearError("count in this form is not followed")
    return [(GPUS, "all" if n == "all" else ",".join(map(str, range(min(int(n), 64)))))
            for n in counts]  # fmt: skip
