"""A text in the language of a POSIX shell or bash, followed step by step and never run.

The grammar is tree-sitter's. Every statement changes the `Variables`; a command that starts a
program is noted in the `Trace`. What may happen or not is followed both ways, and the two are
joined. If no step accounts for an occurrence of a variable's name, the text is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from gputop.model.cuda.pasted.outcome import (
    CONCERNED,
    Trace,
    UnclearError,
    UndecidedError,
    Unknown,
)
from gputop.model.cuda.pasted.programs import words
from gputop.model.cuda.pasted.variables import Variables
from gputop.model.cuda.pasted.words import Argument, Command, Input, Node, Words, parse, within

_NAMES = re.compile("|".join(CONCERNED).encode())
_DEEPEST = 40
_MOST_ROUNDS = 64
_ROUNDS = "a loop gives it a value that the text does not tell"
_REDIRECTS = {"file_redirect", "herestring_redirect", "heredoc_redirect"}
_CLAUSES = {"elif_clause", "else_clause"}
_SPECIAL = words(
    "eval . source exec export set unset : readonly shift trap break continue return exit times"
)
_DIGITS = tuple(map(str, range(1, 10)))

Runner = Callable[["Shell", Command], None]
Assignment = tuple[str, str | Unknown]


class Shell:
    """A shell that follows one text; a text inside it, as of `bash -c`, has a shell of its own."""

    def __init__(self, text: str, variables: Variables, trace: Trace, run: Runner) -> None:
        self.variables = variables
        self.trace = trace
        self.local: set[str] = set()
        """The variables that are assigned in front of the command."""
        self._run = run
        self._source = text.encode("utf-8", "replace")
        self._accounted: set[int] = set()
        self._words = Words(self._source, variables, trace, self._substitute)
        self.raw = self._words.raw
        self._input = Input()
        self._inner = 0
        """The number of functions and loops around the current statement."""

    def follow(self) -> None:
        """Follow the text to its end; raises NotKnownError."""
        with self._deeper("it is nested too deeply"):
            self._statements(parse(self._source, self.trace))
        for match in _NAMES.finditer(self._source):
            if match.start() not in self._accounted:
                before, after = self._source[: match.start()], self._source[match.start() :]
                line = before.rpartition(b"\n")[2] + after.partition(b"\n")[0]
                text = line.decode("utf-8", "replace").strip()[:60]
                raise UnclearError(f"gputop does not know what '{text}' does with the variable")

    def account(self, *words: Argument | Input) -> None:
        """Note that the variables' names in these words are understood."""
        for word in words:
            self._account(word.start, word.end)

    def inside(self, text: str, variables: Variables) -> None:
        """Follow another text, and count its programs as this text's."""
        Shell(text, variables, self.trace, self._run).follow()

    def follow_words(self, *words: Argument) -> None:
        """Follow words that are one text for a shell, with the current variables."""
        for word in words:
            if isinstance(word.text, Unknown):
                raise UndecidedError(f"a shell runs a text that is not told: {word.text.reason}")
        self.inside(" ".join(word.word for word in words), self.variables.child())
        self.account(*words)

    def follow_document(self, given: Input) -> None:
        """Follow the text after `<<` in a shell of its own."""
        if not given.literal:
            raise UndecidedError("the shell puts values into the text behind <<; write <<'EOF'")
        self.inside(given.document or "", self.variables.child())
        self.account(given)

    def _account(self, start: int, end: int) -> None:
        self._accounted |= {match.start() for match in _NAMES.finditer(self._source, start, end)}

    def _account_node(self, node: Node) -> None:
        self._account(node.start_byte, node.end_byte)

    @contextmanager
    def _deeper(self, problem: str) -> Iterator[None]:
        self.trace.depth += 1
        if self.trace.depth > _DEEPEST:
            raise UnclearError(problem)
        yield
        self.trace.depth -= 1

    # --- statements ----------------------------------------------------------------------------

    def _statements(self, node: Node) -> None:
        for child in node.children:
            if _in_background(child):
                with self._subshell():
                    self._statement(child)
                self.variables.status = True
            elif child.is_named:
                self._statement(child)

    def _statement(self, node: Node) -> None:
        if node.type == "comment":
            self._account_node(node)
            return
        self.trace.step(len(self.variables.values))
        if self.variables.ended:
            return
        follow = getattr(self, f"_on_{node.type}", None)
        if follow is None:
            kind = node.type.replace("_", " ")
            raise UnclearError(f"the shell's {kind} is not followed here")
        follow(node)

    def _each(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._statement(node)

    @contextmanager
    def _subshell(self) -> Iterator[Variables]:
        """Follow something in a subshell; only the exit status stays."""
        before = self.variables.copy()
        yield before
        status, certain = self.variables.status, self.variables.certain
        self.variables.become(before)
        self.variables.exits(status, certain=certain)

    def _on_list(self, node: Node) -> None:
        self._and_or(node, lambda: self._statement(node.children[2]))

    def _and_or(self, node: Node, follow_right: Callable[[], None]) -> None:
        """Follow `left && right` or `left || right`."""
        if node.child_count != 3:
            raise UnclearError("the grammar takes something else for a command")
        left, operator, right = node.children
        self._statement(left)
        if self.variables.ended:
            return
        wanted, status = operator.type == "&&", self.variables.status
        if status is wanted and (self.variables.certain or wanted):
            follow_right()
        elif status is (not wanted) and self.variables.certain:
            self._account_node(right)
        else:
            before = self.variables.copy()
            follow_right()
            self.variables.join(before)

    def _on_negated_command(self, node: Node) -> None:
        self._statement(node.children[1])
        if self.variables.status is not None:
            self.variables.status = not self.variables.status

    def _on_pipeline(self, node: Node) -> None:
        """Follow a pipeline. The grammar counts a in `a && b > f | c` as part of it; it is not."""
        parts = node.named_children
        body = parts[0].child_by_field_name("body") or parts[0]
        if body.type != "list":
            self._pipe(parts)
            return
        if body is not parts[0]:
            for child in parts[0].children:
                if child.type in _REDIRECTS:
                    self._redirect(child)
        self._and_or(body, lambda: self._pipe([body.children[2], *parts[1:]]))

    def _pipe(self, parts: list[Node]) -> None:
        """Follow each part in a shell of its own; in zsh and ksh the last part has none."""
        outside = self._input
        for part in parts:
            last = part is parts[-1]
            fed = part is not parts[0] or outside.fed
            self._input = Input(piped=not last or outside.piped, fed=fed)
            with self._subshell() as before:
                self._statement(part)
                differs = any(before.get(n) != self.variables.get(n) for n in CONCERNED)
            if last and differs:
                self.variables.forget(CONCERNED, "shells differ on the end of a pipeline")
                for name in CONCERNED:
                    self.variables.exported.setdefault(name, True)
        self._input = outside

    def _on_subshell(self, node: Node) -> None:
        with self._subshell():
            self._statements(node)

    def _on_compound_statement(self, node: Node) -> None:
        if node.children[0].type == "((":
            self._calculate(node)
        else:
            self._statements(node)

    _on_do_group = _on_else_clause = _statements

    def _calculate(self, node: Node) -> None:
        names = re.findall(r"[A-Za-z_]\w*", self.raw(node))
        self.variables.forget(names, "its value is calculated")
        self.variables.exits(None)
        self._account_node(node)

    def _on_test_command(self, node: Node) -> None:
        raw = self.raw(node)
        if raw.startswith("(("):
            self._calculate(node)
            return
        for child in within(node):
            if child.type == "command_substitution":
                self._substitute(child)
        if re.search(r"\$\{\w+:?=|\$\(\(", raw):
            raise UnclearError("a test that assigns is not followed")
        self._account_node(node)
        self.variables.exits(None)

    def _on_redirected_statement(self, node: Node) -> None:
        outside = self._input
        behind: list[Node] = []
        for child in node.children:
            if child.type in _REDIRECTS:
                self._input, pipelines = self._words.redirect(child, self._input, self.trace)
                behind += pipelines
        body = node.child_by_field_name("body")
        if body is None:
            raise UnclearError("a redirection without a command is not followed")
        self._input = self._input._replace(piped=self._input.piped or bool(behind))
        self._statement(body)
        self._input = Input(fed=True)
        for pipeline in behind:
            self._pipe(pipeline.named_children)
        self._input = outside

    def _redirect(self, node: Node) -> None:
        self._input, behind = self._words.redirect(node, self._input, self.trace)
        if behind:
            raise UnclearError("what stands behind << on its line is not followed")

    # --- choices and loops ---------------------------------------------------------------------

    def _on_if_statement(self, node: Node) -> None:
        clauses = [child for child in node.children if child.type in _CLAUSES]
        self._choose([node, *clauses])
        self.variables.exits(None)

    def _choose(self, clauses: list[Node]) -> None:
        """Follow each branch of `if`, or also none of them if there is no `else`."""
        if not clauses:
            return
        clause, *others = clauses
        if clause.type == "else_clause":
            self._statement(clause)
            return
        if any(map(_in_background, clause.children)):
            raise UnclearError("a background job inside of if is not followed")
        parts = [child for child in clause.children if child.type not in _CLAUSES]
        then = [part.type for part in parts].index("then")
        self._each(part for part in parts[:then] if part.is_named)
        before = self.variables.copy()
        self._each(part for part in parts[then:] if part.is_named)
        chosen = self.variables.copy()
        self.variables.become(before)
        self._choose(others)
        self.variables.join(chosen)

    def _on_for_statement(self, node: Node) -> None:
        if node.children[0].type != "for":
            raise UnclearError("the shell's select is not followed")
        body = node.child_by_field_name("body")
        name = self.raw(node.child_by_field_name("variable"))
        values = [self._words.argument(value) for value in node.children_by_field_name("value")]
        self.account(*values)
        unknown = any(isinstance(value.text, Unknown) for value in values)
        if unknown or not 0 < len(values) <= _MOST_ROUNDS:
            self._loop(body, lambda: self.variables.forget([name], _ROUNDS))
            return
        for value in values:
            if not self.variables.ended:
                self.variables.set(name, value.word)
                self._inside(body)

    def _on_while_statement(self, node: Node) -> None:
        condition = [part for part in node.children_by_field_name("condition") if part.is_named]
        self._loop(node.child_by_field_name("body"), lambda: self._each(condition))

    def _loop(self, body: Node, head: Callable[[], None]) -> None:
        """Follow a loop of any number of rounds until another round changes nothing."""
        for _ in range(_DEEPEST):
            head()
            before = self.variables.copy()
            self._inside(body)
            self.variables.join(before)
            if self.variables.same(before):
                return
        raise UndecidedError("a loop changes its variables in each round")

    def _inside(self, body: Node) -> None:
        self._inner += 1
        self._statement(body)
        self._inner -= 1

    def _on_function_definition(self, node: Node) -> None:
        name = self.raw(node.child_by_field_name("name"))
        self.variables.functions[name] = (self, node.child_by_field_name("body"))

    def call(self, command: Command) -> bool:
        """Call a function that the text defines; False if it defines none of that name."""
        function = self.variables.functions.get(command.words[0].word)
        if function is None:
            return False
        if not isinstance(function, tuple):
            raise UndecidedError("which function is called depends on a condition")
        shell, body = function
        with self._deeper("a function calls itself"):
            values = [argument.text for argument in command.arguments]
            given = zip(_DIGITS, values, strict=False)
            self.variables.values.update({**dict.fromkeys(_DIGITS), **dict(given)})
            if shell.variables is not self.variables:
                raise UnclearError("a function of another shell is not followed")
            shell._inside(body)
            self.variables.forget(_DIGITS, "the text does not tell it")
        return True

    # --- commands ------------------------------------------------------------------------------

    def _on_command(self, node: Node) -> None:
        """Run a command, with the assignments in front of it for as long as it runs."""
        arguments, assignments = self._command_parts(node)
        if not arguments:
            raise UnclearError("a command without a name is not followed")
        before = self.variables.copy()
        for name, value in assignments:
            self.variables.set(name, value, export=True)
        self.local = {name for name, _ in assignments}
        self._run(self, Command(arguments, self._input))
        if assignments:
            self._restore(before, arguments[0].word, [name for name, _ in assignments])

    def _restore(self, before: Variables, command: str, names: list[str]) -> None:
        """Take assignments back; before a special builtin shells differ on whether they stay."""
        stays = command in _SPECIAL or command in self.variables.functions
        for name in names:
            self.variables.restore(name, before)
            if stays:
                reason = f"shells differ on whether it stays set after {command}"
                self.variables.values[name] = Unknown(reason)
                self.variables.export(name)

    def _command_parts(self, node: Node) -> tuple[list[Argument], list[Assignment]]:
        arguments, assignments = [], []
        before = dict(self.variables.values)
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self._assigned(child))
                self.variables.forget([assignments[-1][0]], "shells differ on its value here")
                continue
            if assignments:
                self.variables.values = {**self.variables.values, **before}
            if child.type in _REDIRECTS:
                self._redirect(child)
            elif child.is_named:
                self.trace.step()
                arguments.append(self._words.argument(child))
                self._account_readings(child)
            else:
                raise UnclearError(f"'{child.type}' in a command is not followed")
        return arguments, assignments

    def _account_readings(self, node: Node) -> None:
        """Account for what only reads a variable."""
        for part in (node, *within(node)):
            if part.type in ("simple_expansion", "expansion"):
                self._account_node(part)

    def _assigned(self, node: Node) -> Assignment:
        name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name_node.type != "variable_name":
            raise UnclearError("an element of an array is not followed")
        name = self.raw(name_node)
        array = value is not None and value.type == "array"
        text = Unknown("it is an array") if array else self._words.value(value)
        if any(child.type == "+=" for child in node.children):
            before = self.variables.get(name)
            if isinstance(before, Unknown) or isinstance(text, Unknown):
                text = Unknown("something unknown is added to")
            else:
                self.trace.spend(len(before or ""))
                text = (before or "") + text
        self._account_node(name_node)
        if value is not None:
            self._account_readings(value)
        return name, text

    def _on_variable_assignment(self, node: Node) -> None:
        self.variables.set(*self._assigned(node))
        self.variables.status = True

    def _on_variable_assignments(self, node: Node) -> None:
        for child in node.named_children:
            self._on_variable_assignment(child)

    def _substitute(self, node: Node) -> None:
        """Follow `$( )`, a subshell whose output is used."""
        outside, self._input = self._input, Input(piped=True)
        self._on_subshell(node)
        self._input = outside

    # --- export, declare, unset ----------------------------------------------------------------

    def _on_declaration_command(self, node: Node) -> None:
        keyword, names = node.children[0].type, ("variable_assignment", "variable_name")
        options = [self._words.argument(child).word for child in node.named_children
                   if child.type not in names]  # fmt: skip
        if not all(option.startswith("-") for option in options):
            raise UnclearError(f"this form of {keyword} is not followed")
        flags = "".join(option.lstrip("-") for option in options)
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._check_braces(child)
                name, value = self._assigned(child)
                self.variables.set(name, value)
            elif child.type == "variable_name":
                name = self.raw(child)
                self._account_node(child)
            else:
                continue
            self._declare(name, keyword, flags)
        self.variables.status = True

    def _check_braces(self, node: Node) -> None:
        value = node.child_by_field_name("value")
        if value is not None and value.type in ("word", "concatenation") and "{" in self.raw(node):
            raise UnclearError("braces behind export are not followed")

    def _declare(self, name: str, keyword: str, flags: str) -> None:
        inside = self._inner > 0 and keyword in ("declare", "typeset")
        if inside or keyword in ("local", "readonly") or set(flags) - set("xnp"):
            if name in CONCERNED:
                raise UnclearError(f"{keyword} {flags and '-' + flags} of {name} is not followed")
            self.variables.forget([name], f"{keyword} is not followed")
        elif keyword == "export" and "n" in flags:
            self.variables.keep(name)
        elif keyword == "export" or "x" in flags:
            self.variables.export(name)

    def _on_unset_command(self, node: Node) -> None:
        arguments = [self._words.argument(child) for child in node.named_children]
        flags = [word.word for word in arguments if word.word.startswith("-")]
        unknown = any(isinstance(word.text, Unknown) for word in arguments)
        if unknown or not {*flags} <= {"-v", "-f"}:
            raise UnclearError("this form of unset is not followed")
        for argument in arguments:
            if argument.word in flags:
                continue
            self.account(argument)
            if "-f" in flags:
                self.variables.functions.pop(argument.word, None)
            else:
                self.variables.set(argument.word, None)
        self.variables.status = True


def _in_background(node: Node) -> bool:
    sibling = node.next_sibling
    return node.is_named and sibling is not None and sibling.type == "&"
