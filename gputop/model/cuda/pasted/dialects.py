"""Other shells and languages, line by line: what sets or removes a variable, written as bash.

fish, csh, PowerShell, Windows' cmd, IPython's magic; C, R, Julia, Node, Go, Ruby. All have one
reader: a statement sets or removes a variable, or must mean the same in bash and name no variable
that is followed. Otherwise the text is not understood.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gputop.model.cuda.pasted.outcome import CONCERNED, UnclearError, UndecidedError, mentions

_NAME = r"(?P<name>[A-Za-z_]\w*)"
_OURS = "|".join(CONCERNED)
_V = rf"[\"']?(?P<name>{_OURS})[\"']?"
_Q = r"(?P<value>\"[^\"\\$#{}%]*\"|'[^'\\]*')"
_WORD = r"(?P<value>\"[^\"$`\\]*\"|'[^'\\]*'|[^\s\"'$`\\;&|<>(){}*?\[\]#]*)"
_FLAGS = r"(?P<flags>(?:-[xgUl]+\s+|--(?:export|global|universal|local)\s+)+)"


class Dialect(NamedTuple):
    """How a language sets variables."""

    name: str
    mark: str
    """A pattern that is found in lines of this language."""
    sets: tuple[str, ...]
    """Patterns of whole statements, with a `name` and perhaps a `value`."""
    removes: str = "(?!)"
    separator: str = ";|&&"
    windows: bool = False
    """Whether names have no case, paths have \\, and a variable without a value is removed."""
    quotes: bool = True
    """Whether quotes around a value and blanks after it are not part of it."""
    code: bool = False
    """Whether its other statements are code, not commands."""


_DIALECTS = (
    Dialect("IPython", r"^\s*%(?:set_)?env\s",
            (rf"%(?:set_)?env\s+{_NAME}(?:\s*=\s*|\s+)(?P<value>[^\s${{][^${{]*?)\s*",),
            separator=r"\n", quotes=False),
    Dialect("Windows' cmd", r"^\s*(?:SET\s|set\s+\"|(?i:set)\s+[A-Za-z_]\w*=[^&]*&)",
            (rf"(?i:set)\s+\"{_NAME}=(?P<value>[^\"%!]*)\"\s*",
             rf"(?i:set)\s+{_NAME}=(?P<value>[^&|<>^\"%!]*)"),
            separator="&+", windows=True, quotes=False),
    Dialect("PowerShell", r"(?i)\$env:|\benv:\\?[a-z]",
            (rf"(?i:\$env:){_NAME}\s*=\s*(?P<value>\"[^\"$`]*\"|'[^']*'|[0-9]+)",),
            rf"(?i:Remove-Item\s+(?:-Path\s+)?[\"']?Env:\\?{_NAME}[\"']?)", windows=True),
    Dialect("csh", r"^\s*(?:un)?setenv\s", (rf"setenv\s+{_NAME}(?:\s+{_WORD})?",),
            rf"unsetenv\s+{_NAME}"),
    Dialect("fish", rf"(?:^|;|\band|&&)\s*set\s+(?:--?\w+\s+)+(?:{_OURS})(?:\s|;|$)",
            (rf"set\s+{_FLAGS}{_NAME}(?:\s+{_WORD})?",),
            rf"set\s+(?:-eg?|-ge|--erase)\s+{_NAME}", separator="; and |;|&&"),
    Dialect("this language", r"(?i)\b(?:set|put)env(?:_s)?\(|\bset_var\(|\bENV\[|process\.env\b",
            (r"(?:[\w:]+(?:\.|::))?(?:setenv|Setenv|putenv|_putenv_s|set_var)\("
             rf"\s*{_V}\s*[,=]\s*{_Q}\s*(?:,\s*(?:1|true)\s*)?\)",
             rf"(?:ENV|process\.env)\[\s*{_V}\s*\]\s*=\s*{_Q}", rf"process\.env\.{_V}\s*=\s*{_Q}"),
            separator=r"//.*|;", code=True),
)  # fmt: skip
_CRON = re.compile(
    r"^\s*(?:@(?:reboot|daily|hourly|weekly|monthly)|[\d*/,-]+(?:\s+[\d*/,-]+){3}\s+[\w*/,-]+)\s+(?=\S)"
)
_CELL = re.compile(r"\s*%%(?:bash|sh|script bash)\b[^\n]*\n(.*)", re.DOTALL)
_CHOICE = r"(?m)^[\s}]*(?:if|for|while|else|elsif|unless|case|switch|def|func|fn)\b"
_HARMLESS = re.compile(r"\s*%(?:cd|pip|conda|matplotlib|load_ext|autoreload)\b")


def to_posix(text: str, *, windows: bool = False) -> str:
    """Rewrite the lines of another shell for bash; UnclearError if several languages mix."""
    cell = _CELL.fullmatch(text)
    if cell is not None:
        return cell[1]
    lines = text.split("\n")
    if _is_makefile(lines):
        return "\n".join(map(_recipe, lines))
    lines = [_magic(_CRON.sub("", line)) for line in lines]
    windows = windows or any(re.fullmatch(r"(?i)\s*@echo off\s*", line) for line in lines)
    if windows:  # there `set` is not bash's, even alone on its line
        lines = [re.sub(r"(?i)^\s*@?set\b", "SET", line) for line in lines]
    used = [d for d in _DIALECTS if any(_is_of(line, d) for line in lines)]
    if len(used) > 1:
        raise UnclearError("several languages stand in one text")
    if used and used[0].code and re.search(_CHOICE, text):
        raise UndecidedError("it depends on a condition")
    return "\n".join(_translated(line, d) if d.code or _is_of(line, d) else line
                     for line in lines for d in used or _DIALECTS[:1])  # fmt: skip


def _is_of(line: str, dialect: Dialect) -> bool:
    return re.search(dialect.mark, line) is not None and (not dialect.code or mentions(line))


def _translated(line: str, dialect: Dialect) -> str:
    parts = re.findall(rf"(?:\"[^\"]*\"|'[^']*'|(?!{dialect.separator}).)+", line)
    return "; ".join(filter(None, (_statement(part, dialect) for part in parts)))


def _statement(part: str, dialect: Dialect) -> str:
    stripped = part.strip() if dialect.quotes else part.lstrip()
    for form in dialect.sets:
        if match := re.fullmatch(form, stripped):
            return _set(match, dialect)
    if removed := re.fullmatch(dialect.removes, stripped):
        return f"unset {removed['name'].upper() if dialect.windows else removed['name']}"
    named = mentions(stripped.upper() if dialect.windows else stripped)
    if dialect.code:
        if named:
            raise UndecidedError("the value is no text that stands there")
        return ":"
    if named or re.search(dialect.mark, stripped):
        raise UnclearError(f"this line of {dialect.name} is not followed")
    return stripped.replace("\\", "/") if dialect.windows else stripped.removeprefix("and ")


def _set(match: re.Match[str], dialect: Dialect) -> str:
    name = match["name"].upper() if dialect.windows else match["name"]
    value = match["value"] or ""
    if dialect.quotes:
        value = re.sub(r"^([\"'])(.*)\1$", r"\2", value)
    if dialect.windows and not value:
        return f"unset {name}"
    quoted = value.replace("'", "'\\''")
    local = "flags" in match.groupdict() and "x" not in match["flags"]
    return f"{'' if local else 'export '}{name}='{quoted}'"


def _magic(line: str) -> str:
    """Rewrite IPython's `!`, which starts a shell of its own: nothing stays set after it."""
    if _HARMLESS.match(line):
        return ":"
    shell = re.fullmatch(r"\s*!{1,2}(?![\s=\[])(\S.*)", line)
    if shell is not None and re.search(r"(?<!\$)\{[^}]*\}", shell[1]):
        raise UnclearError("IPython puts a value of the program's into it")
    return line if shell is None else f"( {shell[1]}\n)"


def _is_makefile(lines: list[str]) -> bool:
    return any(re.match(r"[\w./ -]+:(?!=)", line) for line in lines) and any(
        line.startswith("\t") for line in lines
    )


def _recipe(line: str) -> str:
    """Rewrite a line of a recipe, which has a shell of its own; make's variables are not known."""
    if not line.startswith("\t"):
        if mentions(line):
            raise UnclearError("a variable of a Makefile is not followed")
        return ""
    recipe = re.sub(r"^\t[@+-]*\s*", "", line)
    recipe = re.sub(r"(?<!\$)\$[({](\w+)[)}]", r"${MAKE_\1}", recipe).replace("$$", "$")
    return f"( {recipe}\n)"
