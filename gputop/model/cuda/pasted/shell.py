"""A POSIX shell or bash, one command after the other: what its programs are started with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from gputop.model.machine.environment import NAME, ORDER
from gputop.model.machine.text import printable

_ROUND = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_RUN = rf"\\[\s\S]|\${_ROUND}|`[^`]*`|\$\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}"
_PIECE = (
    rf"{_RUN}|'[^']*'|\$'(?:\\[\s\S]|[^'\\])*'|\"(?:\\[\s\S]|\${_ROUND}|\$(?!\()|[^\"\\$])*\""
    rf"|[<>]{_ROUND}|(?<=[=@?*+!]){_ROUND}|\$(?![({{'])|[^\s;&|<>()'\"`\\$]"
)
"""A part of a word: an escape, `$( )`, `${ }`, a quotation, an array, or a character."""
_LOOKUP = (
    r"\$(?P<name>[A-Za-z_][A-Za-z_0-9]*)|\$[0-9@*#?!$[-]|\{"
    r"|\$\{(?P<braced>[A-Za-z_][A-Za-z_0-9]*)(?::-(?P<default>[^{}$`\"'\\]*))?\}"
)
_BARE, _QUOTED = re.compile(f"{_LOOKUP}|{_PIECE}"), re.compile(rf"{_LOOKUP}|{_RUN}|[\s\S]")
_TOKEN = re.compile(
    rf"(?:[ \t]|\\\n)+|#[^\n]*|(?P<target>(?:&>>?|[0-9]*(?:<<<|[<>]&|>>|>\||<>|[<>])(?!\())[ \t]*"
    rf"(?:{_PIECE})+)|(?P<word>\[\[ [^\n]*? \]\]|\({_ROUND}\)|(?:{_PIECE})+)"
    r"|(?P<operator>\n|;;&?|;&|&&|\|\||\|&|[;&|()])|(?P<rest>[\s\S]+)"
)
_DOCUMENT = re.compile(r"(?m)^([^#\n]*?)<<-? *(['\"]?)(\w+)\2(.*)\n((?:.*\n)*?)\t*\3 *$")
_NAMED = re.compile(
    rf"(?:(?<![\w$])|(?<=-u))(?<!\$\{{)(?<!\$\{{[#!])(?:{NAME}|{ORDER})(?!\w)"
    rf"|\$\{{(?:{NAME}|{ORDER}):?="
)
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
_FOLDER = re.compile(r".*/|[\"'\\]")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPENS, _CLOSES = ("(", "{", "if", "while", "until", "for", "select"), (")", "}", "fi", "done")
_KEYWORDS = (*_OPENS, *_CLOSES, "then", "else", "elif", "do", "!", "time")
_TOOLS = re.compile(
    r"[:.[]|\[\[(?s:.*)|\(\((?s:.*)|apt|apt-get|awk|bg|cat|cd|chmod|clear|conda|cp|curl|cut|date|df|du"
    r"|disown|echo|eval|exit|find|for|git|gpustat|grep|head|htop|jobs|kill|let|ls|mapfile|mkdir|module"
    r"|mv|nvidia-smi|pip3?|popd|printf|ps|pushd|pwd|read|rm|sed|select|set|shift|sleep|sort|source"
    r"|tail|tar|tee|test|break|touch|trap|true|ulimit|unzip|wait|watch|wget|which"
)
"""Commands that use no GPU: those without a value of their own are no programs."""
_SETS = re.compile("export|declare|typeset|local|unset")
_CHANGES = re.compile(rf"{_SETS.pattern}|read|mapfile|let|for|select|printf|getopts|\(\((?s:.*)")
_WRAPS = re.compile("env|sudo|nohup|nice|timeout|stdbuf|setsid|exec|command|taskset|numactl|ionice")
_ELSEWHERE = re.compile(
    "(?:s(?:run|batch|alloc|u|sh|ervice)|[qb]sub|jsrun|mosh|doas|runuser|systemd-run|systemctl|tmux"
    "|screen|kubectl|(?:nvidia-)?docker(?:-compose)?|podman|nerdctl|apptainer|singularity|nvitop|gpustat"
    "|nvidia-smi) |accelerate .*--gpu[_-]ids|deepspeed .*(?: -[ieH] |--(?:inc|exc|num_|hostf))"
)
"""Commands whose programs have other variables or other GPUs, or that do not read the variable."""
_ALL_GPUS = re.compile(r"--gpus[ =][\"']?all\b|--device[ =]nvidia\.com/gpu=all\b")
_CONTAINER_SETS = re.compile(r" (?:-e|--env)[ =]([A-Za-z_]\w*)(\+?)=(\S*)")
_INSIDE = re.compile(r"(?:\$\(|`)[^)`]*(?:\bpython|\.py\b|\b(?:torchrun|accelerate|deepspeed)\b)")
"""A word that starts such a program to keep what it prints."""
_READS_IN = re.compile(r"(?:source|\.|eval|set (?:-\w*a|-o allexport)) ")
_HARMLESS = re.compile(r"\b(?:activate|conda|mamba|pyenv|bashrc|profile|zshrc)\b")
_PROSE = re.compile("the|is|are|was|will|must|your?|this|that|which|means|of|not|[A-Za-z]{2,}[.,]")
_NO_PROGRAM = re.compile(
    r".*[:,.]|[^\w./~$\"'{@%\\].*|[^=]*=.*|\\?[ \t]*|[\"']?\d+[\"']?|a|and|as|at|be|but|can|if|in"
    rf"|not|on|only|or|so|then|to|with|when|(?:do|work|set|use|select|make|tell|give|hide|let)e?s|{NAME}"
)


class UnclearError(Exception):
    """Nothing can be claimed; the message says which word of the text is why."""


Value = str | UnclearError | None
"""Of a variable; None: unset. The error says why it cannot be known, if a program needs it."""


class Program(NamedTuple):
    command: list[str]
    value: Value
    order: Value


class Shell:
    """Follows the text of one shell to its end."""

    def __init__(self, text: str, inherited: Mapping[str, Value]) -> None:
        self.programs: list[Program] = []
        """What it starts, and a program without a command behind each setting of the variable."""
        self._values, self.exported = dict(inherited), set(inherited)
        self._varying: dict[str, UnclearError] = {}
        plain = [*_commands(text)]
        for words, _, loose in plain:
            for name in _changed(words) if loose else ():
                self._varying[name] = UnclearError(
                    f"{name} is set in a block, a pipe or a condition"
                )
        for words, kept, _ in plain:
            self._run(words, kept=kept)

    def look(self, name: str) -> Value:
        unset = None if name in (NAME, ORDER) else UnclearError(f"the text does not define ${name}")
        return self._varying.get(name) or self._values.get(name, unset)

    def _run(self, whole: list[str], *, kept: bool) -> None:
        """Follow a command; `kept`: what it prints is not only shown."""
        for word in filter(_INSIDE.search, whole):
            raise UnclearError(f"what {shown(word)} starts is not followed")
        words, given, launcher = self._launched(whole)
        name, sets = _FOLDER.sub("", (words or [""])[0]), _SETS.fullmatch(launcher)
        if not words and (sets or not launcher):
            self._values |= given
            if NAME in given and (launcher != "export" or given[NAME] is not None):
                self.programs.append(Program([], self.look(NAME), self.look(ORDER)))
            if launcher == "unset" or "-n" in whole:
                self.exported -= given.keys()
            elif launcher == "export" or {"-x", "-gx"} & {*whole}:
                self.exported |= given.keys()
        elif sets:
            _check([launcher, *whole])
        elif _TOOLS.fullmatch(name) and NAME not in given:
            self._run_tool(name, words, kept or name not in ("echo", "printf", "grep", "["))
        elif words and (named(whole) or not any(map(_PROSE.fullmatch, words))):
            self._start(name, words, given)

    def _run_tool(self, name: str, words: list[str], kept: bool) -> None:
        """Follow a command that uses no GPU, and may change variables."""
        line = " ".join([*words, ""])
        _check([name, *(word for word in words if kept or re.search(r"\$\(|`", word))])
        self._values |= {
            key: UnclearError(f"{name} gives {key} a value") for key in _changed(words)
        }
        if _READS_IN.match(line) and not _HARMLESS.search(line):
            if name == "eval" or "<(" in line:
                raise UnclearError(f"what {shown(words)} starts is not followed")
            self._values = {NAME: UnclearError(f"{shown(words)} may set it")}
            self.exported |= {NAME}

    def _launched(self, words: list[str]) -> tuple[list[str], dict[str, Value], str]:
        """Return what `env`, `sudo` or `nohup` starts, its own variables, and the last of these."""
        given, launcher, sets = dict[str, Value](), "", False
        while words:
            word, name, match = words[0], _FOLDER.sub("", words[0]), _ASSIGN.match(words[0])
            if match and (sets or launcher in ("", "env", "sudo")):
                own = not given.keys().isdisjoint(re.findall(r"\$\{?(\w+)", match[3]))
                why = f"{shown(match[0])} reads what its own line sets"
                given[match[1]] = UnclearError(why) if own else self._assigned(match)
            elif sets and (_IDENTIFIER.fullmatch(word) or word in ("-x", "-gx", "-n", "-g")):
                given |= {word: None if launcher == "unset" else self.look(word)}
            elif _WRAPS.fullmatch(name) or (not launcher and not given and _SETS.fullmatch(name)):
                launcher, sets = name, _SETS.fullmatch(name) is not None
                line = " ".join([*words, ""])
                if name == "sudo" and not re.match(r"\S+ -[HknS]*E[HknS]* ", line):
                    keeps = re.search(r" [\"'\\]*(?:-[^ -]*E|--pre[^ =]* |--pre\S*CUDA)", line)
                    kept = UnclearError("what sudo keeps is not in the text") if keeps else None
                    given = {NAME: kept, ORDER: kept}
            elif launcher and not sets and re.match(r"-|[0-9][0-9.,:-]*[smhd]?$", word):
                words = words[word in ("-u", "-g", "-s", "-a", "-o") and len(words) > 1 :]
                if launcher == "env":
                    name = re.sub("^(?:-u|--unset=)", "", words[0])
                    every = {NAME, ORDER} if re.match("-(?:[0v]*i|-i|$)", word) else {}
                    given |= dict.fromkeys(every or {name})
            else:
                break
            words = words[1:]
        return words, given, launcher

    def _assigned(self, match: re.Match[str]) -> Value:
        if named(match[3]):
            raise UnclearError(f"{shown(match[0])} only quotes the variable's name")
        if match[2] or match[3].startswith("(") or "\n" in match[3].replace("\\\n", ""):
            return UnclearError(f"{shown(match[0])} is not followed")
        return value_of(match[3], self.look)

    def _start(self, name: str, words: list[str], given: dict[str, Value]) -> None:
        """Add a program; UnclearError for words of a sentence, or where it may be another."""
        for word in (*filter(_PROSE.fullmatch, words), *filter(_NO_PROGRAM.fullmatch, words[:1])):
            raise UnclearError(f"it starts a command called {shown(word)}")
        exported = {NAME, ORDER} & (self.exported | self._varying.keys())
        environ = {NAME: None, ORDER: None} | {key: self.look(key) for key in exported} | given
        line = " ".join([name, *words[1:], ""])
        line = re.sub(r"(?<=[ =])([\"'])(\w+=[\w,-]*)\1(?= )", r"\2", line)
        if re.match(r"(?:docker|podman) run ", line) and named(line):
            why = "which GPUs the container gets is not in the text"
            environ = {NAME: UnclearError(why), ORDER: None}
            for match in _CONTAINER_SETS.finditer(line if _ALL_GPUS.search(line) else ""):
                environ[match[1]] = self._assigned(match)
        elif _ELSEWHERE.match(line):
            is_set = not all(program.command for program in self.programs) or named(line)
            if environ[NAME] is None and not is_set and name not in ("accelerate", "deepspeed"):
                return
            environ[NAME] = UnclearError(f"what {name} starts it with is not in the text")
        else:
            _check(words)
        self.programs.append(Program(words, environ[NAME], environ[ORDER]))


def _check(words: list[str]) -> None:
    for word in filter(named, words):
        raise UnclearError(f"what {shown(words[0])} does with {shown(word)} is not followed")


def _commands(text: str) -> Iterator[tuple[list[str], bool, bool]]:
    """Yield commands, whether what one prints is kept, and whether it may not run once and here."""
    depth, maybe, last = 0, False, ""
    for words, before, after, writes in _split(text):
        maybe = before == "||" or (before == "&&" and (maybe or last in ("test", "grep", "[")))
        if words[0] in ("case", "function") or (after == "(" and len(words) == 1):
            raise UnclearError(f"{shown(words)} is not followed")
        while words and words[0] in _KEYWORDS:
            depth += (words[0] in _OPENS) - (words[0] in _CLOSES)
            if words[0] in ("for", "select"):
                break
            words = words[1:]
        if words:
            last = re.sub(r"(?s)^(?:\[\[|\(\().*", "[", words[0])
            apart = before[:1] == "|" or after in ("|", "|&", "&")
            yield words, writes or "|" in after, depth > 0 or maybe or apart
    if depth:
        raise UnclearError("a block has no end, or no start")


def _changed(words: list[str]) -> set[str]:
    """Return the variables that a command changes in its shell."""
    changes = _CHANGES.fullmatch(words[0]) or all(map(_ASSIGN.match, words))
    before = " ".join(word.partition("=")[0] for word in words if changes)
    return {*_IDENTIFIER.findall(before)}


def named(words: str | Iterable[str]) -> bool:
    """Return whether a text names one of the variables otherwise than to read it."""
    return _NAMED.search(words if isinstance(words, str) else " ".join(words)) is not None


def shown(words: str | Iterable[str]) -> str:
    return printable(words if isinstance(words, str) else " ".join(words), 48)


def _split(text: str) -> Iterator[tuple[list[str], str, str, bool]]:
    """Yield words with their quotes, the operators around them, and whether a file is written."""
    words, before, writes = list[str](), "", False
    plain = _DOCUMENT.sub(lambda m: m[0] if named(m[5]) else m[1] + m[4], text + "\n")
    for token in _TOKEN.finditer(plain):
        if token["rest"] or named(token["target"] or ""):
            raise UnclearError(f"{shown(token[0].split()[0])} cannot be followed to its end")
        words += [token["word"]] if token["word"] else []
        writes |= re.search(r"^[^<]*>(?!&|\s*/dev/null)", token["target"] or "") is not None
        if operator := token["operator"]:
            yield from [(words, before, operator, writes)] if words else []
            yield from [([operator], "", "", False)] if operator in "()" else []
            before = operator if words or operator != "\n" else before
            words, writes = [], False


def value_of(raw: str, look: Callable[[str], Value], pieces: re.Pattern[str] = _BARE) -> Value:
    """Return the value of a word; `look` tells a variable's."""
    text, bare = "", pieces is _BARE
    for match in pieces.finditer(raw):
        piece, name = match[0], match["name"] or match["braced"]
        part: Value = piece
        if name:
            part = look(name) or match["default"] or ""
        elif piece in ("{", "~"[:bare]) or (piece[0] in "$`" and len(piece) > 1):
            part = UnclearError(f"{shown(raw[match.start() :])} is known only when it runs")
        elif piece[0] == "\\" and (bare or piece[1] in '$`"\\\n'):
            part = piece[1].strip("\n")
        elif bare and piece[0] in "'\"":
            part = piece[1:-1] if piece[0] == "'" else value_of(piece[1:-1], look, _QUOTED)
        if len(text) > 512 or not isinstance(part, str):
            return part if isinstance(part, UnclearError) else UnclearError("a value is too long")
        text += part
    return text
