"""Prompts, fences and marks around a text that was copied from a terminal, a page or a chat."""

from __future__ import annotations

import html
import re
import unicodedata

from gputop.model.cuda.pasted.outcome import CONCERNED, UnclearError

NEWLINE = "\u2424"
"""Stands for a line end in an editor of one line."""
CUT = "\u2026"
"""Stands at the end of a text that was cut."""
LOST = "\ufffd"
"""Stands for a character that cannot be shown."""
_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w.+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL
)
# `$ `, `(base) user@host:~/src$ `, `[user@host src]# `, `host% `, `❯ `, `PS C:\> `
_PROMPT = re.compile(
    r"[ \t]*(?:\([\w.+/-]+\)[ \t]*)?"
    r"(?:[\w.-]+@[\w.-]+(?:[:][^\s$#%]*|[ \t][^\s$#%=]*)?[ \t]?[$#%>]|\[[\w.-]+@[^\]=]*\][$#%]"
    r"|[\w.-]*[$%]|[❯➜λ]|~/|~?/?[\w./~-]*[$%]|PS [A-Za-z]:[^>\n]*>|[A-Za-z]:\\[^>\n=]*>)[ \t]+",
)
_PYTHON_PROMPT = re.compile(r"[ \t]*(?:>>>|\.\.\.|In \[\d*\]:|\.{3,}:)(?:[ \t]|$)")
_MARK = re.compile(r"^[ \t]*(?:(?:[*•‣▪]|\d{1,2}[.)])[ \t]+(?=\S)|-[ \t]+(?=[A-Z_]+=\S*[ \t]+\S))")
_ENTITY = re.compile(r"&(?:quot|amp|lt|gt|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,5});")


def one_line(text: str) -> str:
    """Remove each \\ with its line end, as a shell does before it splits words."""
    if "<<" in text or "\\\n" not in text:
        return text
    letters, quote, at = [], "", 0
    while at < len(text):
        letter, pair = text[at], text[at : at + 2]
        if quote == "#":
            quote = "" if letter == "\n" else quote
        elif pair == "\\\n" and quote != "'":
            at += 2
            continue
        elif letter == "\\" and quote != "'":
            letters.append(letter)
            at, letter = at + 1, text[at + 1 : at + 2]
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" or (letter == "#" and (not letters or letters[-1].isspace())):
            quote = letter
        letters.append(letter)
        at += 1
    return "".join(letters)


def lines_of(text: str) -> str:
    """Return a text with plain line ends and without the blanks around it."""
    text = text.replace(NEWLINE, "\n").replace("\r\n", "\n").replace("\r", "\n")
    return text.strip("\n").strip(" \t") if "\n" not in text.strip() else text.strip("\n").rstrip()


def names_variable(text: str) -> bool:
    """Return whether a text names one of the variables, however it is written."""
    plain = unicodedata.normalize("NFKC", text)
    plain = "".join(c for c in plain if unicodedata.category(c) != "Cf").upper()
    return any(name in plain for name in CONCERNED)


def check_characters(text: str) -> None:
    """Raise UnclearError if a character is not what it looks like, and means another to a shell."""
    if text.endswith(CUT):
        raise UnclearError("it is longer than what is here")
    if LOST in text:
        raise UnclearError("it holds a character that cannot be shown, which a shell does not skip")
    for character in text:
        if character in "\n\t" or (character.isascii() and character.isprintable()):
            continue
        kind = unicodedata.category(character)
        if kind in ("Cc", "Cf", "Zs", "Zl", "Zp", "Cs", "Cn", "Co"):
            name = unicodedata.name(character, "a control character").lower()
            raise UnclearError(
                f"it holds {name} (U+{ord(character):04X}), which a shell does not skip"
            )
    if re.search(r"\\[ \t]+\n", text):
        raise UnclearError(
            "a blank stands behind a \\ at the end of a line, which then joins nothing"
        )
    plain = unicodedata.normalize("NFKC", text)
    if any(plain.count(name) > text.count(name) for name in CONCERNED):
        raise UnclearError("its letters look like those of the variable, and are others")
    entity = _ENTITY.search(text)
    if entity is not None:
        plain = html.unescape(entity[0])
        raise UnclearError(f"it holds {entity[0]}, which stands for {plain} on a page")


def unfenced(text: str) -> tuple[str, str]:
    """Return a text without Markdown's fences or backticks, and the language they name, or ""."""
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        whole = re.fullmatch(r"`([^`]+)`", text.strip())
        return (whole[1].strip(), "") if whole else (text, "")
    outside = _FENCE.sub("", text)
    inside = [block for block in blocks if names_variable(block[3])]
    if names_variable(outside) or len(inside) > 1:
        raise UnclearError("it is a page with several parts that name the variable")
    block = (inside or blocks)[0]
    return block[3].rstrip("\n"), block[2].lower()


def without_prompts(text: str) -> tuple[str, str]:
    """Return a text without prompts and printed lines, and "python", "cmd" or "" by the prompts."""
    lines = text.split("\n")
    for pattern, language in ((_PYTHON_PROMPT, "python"), (_PROMPT, "")):
        typed = [pattern.match(line) for line in lines]
        if not any(typed):
            continue
        kept: list[str] = []
        dropped: list[str] = []
        going_on = False
        for line, match in zip(lines, typed, strict=True):
            if match is not None and match[0].strip():
                kept.append(line[match.end() :])
            elif going_on:
                kept.append(re.sub(r"^>[ \t]?", "", line))
            else:
                dropped.append(line)
                continue
            going_on = kept[-1].endswith("\\")
        if any(map(names_variable, dropped)):
            if typed[0] is None or sum(map(bool, typed)) == 1:
                # One prompt in front of a text of several lines: all of it was typed.
                rest = [
                    line[m.end() :] if m else line for line, m in zip(lines, typed, strict=True)
                ]
                return "\n".join(rest), _language(language, lines)
            raise UnclearError("what was typed and what was printed stand together")
        return "\n".join(kept), _language(language, lines)
    if len(lines) == 1:
        return _MARK.sub("", text, count=1), ""
    return text, ""


def _language(language: str, lines: list[str]) -> str:
    """Return "cmd" if a line has the prompt of Windows' cmd, otherwise `language`."""
    return "cmd" if any(re.match(r"\s*[A-Za-z]:\\[^>=]*>", line) for line in lines) else language
