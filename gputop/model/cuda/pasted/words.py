"""The words of a shell command after their expansions, and where its input and output go.

They are read from tree-sitter's tree. Its grammar of bash is imported only when a text needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gputop.model.cuda.pasted.outcome import PastedValue, Trace, UnclearError, Unknown
from gputop.model.cuda.pasted.variables import Variables

Node = Any
"""A node of tree-sitter's tree."""
_CHUNK = 4096

_EXPANSIONS = {
    "simple_expansion",
    "expansion",
    "command_substitution",
    "arithmetic_expansion",
    "process_substitution",
}
_LITERALS = {"word", "number", "variable_name", "test_operator", "extglob_pattern"}
_PLAIN = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_DEFAULT = re.compile(r"\$\{(\w+)(:?)-([^$`\\\"'{}]*)\}")
_ASSIGNS = re.compile(r"\$\{(\w+):?=")
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_SPLITS = re.compile(r"[\s*?\[\]{}\\~]")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r", "e": "\x1b"}
_SUBSTITUTION = Unknown("its value is what a command prints")
_ARITHMETIC = Unknown("its value is calculated")
_SEVERAL = Unknown("the shell makes several words of it, or none")
_FOLDER = Unknown("~ stands for a folder")
_NOWHERE = {"/dev/null", "&1", "&2", "1", "2", "/dev/stderr", "/dev/stdout", "-"}


def parse(source: bytes, trace: Trace) -> Node:
    """Return the root of the tree; UnclearError if the text cannot be parsed."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        raise UnclearError("to read shell lines install tree-sitter and tree-sitter-bash") from None
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    try:
        root = parser.parse(
            lambda start, _: source[start : start + _CHUNK],
            progress_callback=trace.parses_too_long,
        ).root_node
    except ValueError:
        raise UnclearError("it takes too many steps to read") from None
    if root.has_error:
        raise UnclearError("it is not a complete line of a POSIX shell or bash")
    return root


def within(node: Node) -> Iterator[Node]:
    """Yield all nodes inside another, without recursion."""
    waiting = list(node.children)
    while waiting:
        child = waiting.pop()
        yield child
        waiting += child.children


class WordPart(NamedTuple):
    text: str | Unknown
    quoted: bool
    expanded: bool = False
    """Whether it came from an expansion that the shell splits into words."""

    @property
    def splits(self) -> bool:
        """Whether the shell may make several words of the part, or none."""
        text = self.text
        return self.expanded and isinstance(text, str) and (not text or bool(_SPLITS.search(text)))


class Argument(NamedTuple):
    """A word of a command, and where it stands in the text."""

    text: str | Unknown
    start: int = 0
    end: int = 0
    bare: bool = True
    """Whether no part of it is quoted."""

    @property
    def word(self) -> str:
        """The word; "" if it is not known."""
        return self.text if isinstance(self.text, str) else ""

    @property
    def base(self) -> str:
        return self.word.rpartition("/")[2]


class Input(NamedTuple):
    """The source of a command's input and the target of its output, as far as they matter."""

    document: str | None = None
    """What `<<` or `<<<` gives it; None: its input is not in the text."""
    literal: bool = True
    """Whether `document` is known to the letter."""
    to_file: bool = False
    piped: bool = False
    """Whether another command reads what it prints."""
    fed: bool = False
    """Whether it reads what another command prints."""
    start: int = 0
    end: int = 0


class Command(NamedTuple):
    """A command's words, its name first, and its input."""

    words: list[Argument]
    input: Input

    @property
    def name(self) -> str:
        """Its name without a folder."""
        return self.words[0].base

    @property
    def arguments(self) -> list[Argument]:
        return self.words[1:]


class Words:
    """A reader of words; `substitute` follows the commands in `$( )`."""

    def __init__(
        self,
        source: bytes,
        variables: Variables,
        trace: Trace,
        substitute: Callable[[Node], None],
    ) -> None:
        self._source = source
        self._variables = variables
        self._trace = trace
        self._substitute = substitute

    def value(self, node: Node | None) -> str | Unknown:
        """Read an assigned value, which a shell neither splits nor matches as a pattern."""
        if node is None:
            return ""
        parts = self._counted_parts(node)
        bare = _bare(parts)
        return _FOLDER if bare.startswith("~") or ":~" in bare else _joined(parts)

    def argument(self, node: Node) -> Argument:
        """Read a word of a command."""
        parts = self._counted_parts(node)
        text, bare = _joined(parts), _bare(parts)
        if isinstance(text, Unknown):
            text = _SEVERAL if "{" in bare else text
        elif re.search(r"[*?\[]", bare) or _BRACES.search(bare) or any(p.splits for p in parts):
            text = _SEVERAL
        elif re.search(r"[=:]~", bare):
            text = _FOLDER
        literal = not any(part.quoted for part in parts)
        return Argument(text, node.start_byte, node.end_byte, literal)

    def raw(self, part: Node | Argument) -> str:
        if isinstance(part, Argument):
            return self._between(part.start, part.end)
        return self._between(part.start_byte, part.end_byte)

    def _between(self, start: int, end: int) -> str:
        return self._source[start:end].decode("utf-8", "replace")

    def _counted_parts(self, node: Node) -> list[WordPart]:
        """Return the parts of a word, which may be joined: their characters are counted."""
        parts = self._parts(node)
        self._trace.spend(sum(len(part.text) for part in parts if isinstance(part.text, str)))
        return parts

    def _parts(self, node: Node) -> list[WordPart]:
        kind = node.type
        if kind in _EXPANSIONS:
            return [self._expansion(node, quoted=False)]
        if kind in _LITERALS:
            return self._literal(node)
        if kind == "raw_string":
            return [WordPart(self.raw(node)[1:-1], True)]
        if kind == "string":
            return self._string(node)
        if kind == "ansi_c_string":
            return [self._ansi(self.raw(node)[2:-1])]
        if kind in ("concatenation", "command_name"):
            return self._concatenation(node)
        if kind == "brace_expression":
            return [WordPart(_SEVERAL, False)]
        raise UnclearError(f"the shell's {kind.replace('_', ' ')} is not followed here")

    def _literal(self, node: Node) -> list[WordPart]:
        raw = self.raw(node)
        if node.named_child_count and node.type == "number":
            raise UnclearError("a number of another base is not followed")
        if re.search(r"(?<!\\)\n", raw):  # tree-sitter joins them if `\` begins a line
            raise UnclearError("the grammar takes two lines for one")
        if re.search(r"(?<!\\)[$`]", raw):
            raise UnclearError("a $ stands where the grammar does not expect it")
        parts = []
        for text in re.findall(r"\\\n|\\.|[^\\]+|\\", raw, re.DOTALL):
            if text != "\\\n":
                escaped = len(text) == 2 and text[0] == "\\"
                parts.append(WordPart(text[1:] if escaped else text, escaped))
        return parts

    def _concatenation(self, node: Node) -> list[WordPart]:
        parts: list[WordPart] = []
        end = node.start_byte
        for child in node.children:
            if self._source[end : child.start_byte].replace(b"\\\n", b""):
                raise UnclearError("a word is not read to its end")
            parts += self._parts(child) if child.is_named else self._literal(child)
            end = child.end_byte
        return parts

    def _string(self, node: Node) -> list[WordPart]:
        parts, start = [WordPart("", True)], node.start_byte + 1
        for child in node.children:
            if child.type in _EXPANSIONS:
                parts.append(self._quoted(start, child.start_byte))
                parts.append(self._expansion(child, quoted=True))
                start = child.end_byte
        return [*parts, self._quoted(start, node.end_byte - 1)]

    def _quoted(self, start: int, end: int) -> WordPart:
        text = self._between(start, end)
        escapes = r"\\(\n|[$`\"\\])"
        return WordPart(re.sub(escapes, lambda m: "" if m[1] == "\n" else m[1], text), True)

    def _ansi(self, text: str) -> WordPart:
        if re.search(r"\\[^nt\\'\"re]", text):
            return WordPart(Unknown("its escapes are not read"), True)
        return WordPart(re.sub(r"\\(.)", lambda m: _ESCAPES[m[1]], text), True)

    def _expansion(self, node: Node, *, quoted: bool) -> WordPart:
        if node.type in ("command_substitution", "process_substitution"):
            self._substitute(node)
            return WordPart(_SUBSTITUTION, quoted)
        raw = self.raw(node)
        if node.type == "arithmetic_expansion":
            self._variables.forget(re.findall(r"[A-Za-z_]\w*", raw), _ARITHMETIC.reason)
            return WordPart(_ARITHMETIC, quoted)
        value = self._parameter(raw)
        return WordPart("" if value is None else value, True, not quoted)

    def _parameter(self, raw: str) -> PastedValue:
        plain, default = _PLAIN.fullmatch(raw), _DEFAULT.fullmatch(raw)
        if plain:
            return self._variables.get(plain[1] or plain[2])
        if default:
            value = self._variables.get(default[1])
            return default[3] if value is None or (value == "" and default[2]) else value
        if assigns := _ASSIGNS.match(raw):
            self._variables.forget([assigns[1]], "a default may be assigned to it")
        if nested := re.search(r"\$\((?!\()|`", raw[1:]):
            raise UnclearError(f"a command inside of ${{...}} ({nested[0]}) is not followed")
        return Unknown(f"the text does not tell what {raw[:40]} is")

    # --- redirections --------------------------------------------------------------------------

    def redirect(self, node: Node, before: Input, trace: Trace) -> tuple[Input, list[Node]]:
        """Return a command's input after a redirection, and the pipelines after `<<EOF`."""
        if node.type == "heredoc_redirect":
            return self._heredoc(node, before, trace)
        target = self.argument(node.named_children[-1])
        if node.type == "herestring_redirect":
            literal = isinstance(target.text, str)
            document = target.word if literal else self.raw(target)
            return before._replace(document=document, literal=literal, fed=True,
                                   start=target.start, end=target.end), []  # fmt: skip
        operator = next((c.type for c in node.children if not c.is_named), "")
        if ">" in operator and target.word not in _NOWHERE:
            trace.written.add(target.base)
            return before._replace(to_file=True), []
        return (before._replace(fed=True) if operator == "<" else before), []

    def _heredoc(self, node: Node, before: Input, trace: Trace) -> tuple[Input, list[Node]]:
        behind: list[Node] = []
        body, literal, tabs = "", True, False
        start = end = node.end_byte
        for child in node.children:
            if child.type == "heredoc_body":
                start, end, body = child.start_byte, child.end_byte, self.raw(child)
            elif child.type == "heredoc_start":
                literal = re.search(r"[\"'\\]", self.raw(child)) is not None
            elif child.type == "file_redirect":
                before, _ = self.redirect(child, before, trace)
            elif child.type == "heredoc_end":
                self._check_end(child)
            elif child.type == "pipeline":
                behind.append(child)
            elif child.type in ("&&", "||") or (child.is_named and child.type != "comment"):
                raise UnclearError("what stands behind << on its line is not followed")
            tabs |= child.type == "<<-"
        literal = literal or not re.search(r"[$`\\]", body)
        body = re.sub(r"(?m)^\t+", "", body) if tabs else body
        return Input(body, literal, before.to_file, before.piped, True, start, end), behind

    def _check_end(self, node: Node) -> None:
        """Check that the text ends, as for a shell, at a line with the word and nothing else."""
        before = self._source[: node.start_byte].rpartition(b"\n")[2].strip(b"\t")
        if before or self._source[node.end_byte :].partition(b"\n")[0]:
            raise UnclearError("the text behind << has no end")


def _bare(parts: list[WordPart]) -> str:
    return "".join(p.text for p in parts if isinstance(p.text, str) and not p.quoted)


def _joined(parts: list[WordPart]) -> str | Unknown:
    text = ""
    for part in parts:
        if isinstance(part.text, Unknown):
            return part.text
        text += part.text
    return text
