"""Texts as people paste them, made up by chance, and what a real shell does with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from random import Random

N, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
PROGRAMS = ("python", "python3", "torchrun", "accelerate", "./run.sh", "mytrain")
_RECORD = """#!/bin/sh
printf '%s\\t%s\\n' "${{CUDA_VISIBLE_DEVICES-(unset)}}" \\
  "${{CUDA_DEVICE_ORDER-(unset)}}" >> '{record}'
"""


class RealShell:
    """A folder with programs that note the variables they were started with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = folder / "record"
        (folder / "bin").mkdir()
        (folder / "work" / "src").mkdir(parents=True)
        places = [folder / "bin" / name for name in PROGRAMS if "/" not in name]
        places += [folder / "work" / "run.sh", folder / "work" / "src" / "run.sh"]
        for path in places:
            path.write_text(_RECORD.format(record=self._record))
            path.chmod(0o755)

    def run(self, text: str, shell: str = "bash") -> set[tuple[str | None, str | None]]:
        """Run a text as a script; both variables of each program that it started."""
        self._record.unlink(missing_ok=True)
        script = self.folder / "script"
        script.write_text(text)
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environ = {"PATH": path, "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        subprocess.run(
            [shell, str(script)],
            cwd=self.folder / "work",
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        if not self._record.exists():
            return set()
        lines = self._record.read_text().splitlines()
        return {tuple(_value(word) for word in line.split("\t")) for line in lines}  # type: ignore[misc]


def _value(text: str) -> str | None:
    return None if text == "(unset)" else text


class Grammar:
    """Makes texts up; the same chance makes the same text."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def text(self) -> str:
        """Make a whole text."""
        pick = self._chance.random
        lines = [self._line(2) for _ in range(self._chance.choice((1, 1, 1, 2, 2, 3, 4)))]
        if pick() < 0.3:
            lines.append("wait")
        if pick() < 0.1:
            lines.insert(0, "#!/bin/bash")
        if pick() < 0.1:
            lines.insert(0, f"# {N}=7 is not set here")
        return (
            self._one("\n", "\n", "; ", "\n\n").join(lines).replace("&;", "&").replace("; #", "\n#")
        )

    def _one(self, *choices: str) -> str:
        return self._chance.choice(choices)

    def _line(self, depth: int) -> str:
        """Make one or several commands."""
        if depth == 0:
            return self._simple()
        make = self._chance.choice(
            (
                self._simple,
                self._simple,
                self._simple,
                self._state,
                self._state,
                self._joined,
                self._compound,
                self._inner,
            )
        )
        return make(depth)

    def _value(self) -> str:
        return self._one(
            "0",
            "1",
            "2,3",
            "0,1,2,3",
            '"0,1"',
            "'2'",
            '""',
            "",
            "-1",
            "$i",
            '"$GPU"',
            "${X}",
            "$((1+1))",
            "$(echo 1)",
            "`echo 2`",
            "{0,1}",
            "0,*",
            r"\"1\"",
            "1\\\n",
            "'0'\",1\"",
            "$'1'",
            "${X:-3}",
            "${CUDA_VISIBLE_DEVICES},3",
            "GPU-12ab",
            "[0,1]",
            "“0”",
            "0，1",
            "~",
            "a=b",
            "=1",
            "$$",
            "${#X}",
            "$1",
            "$?",
            "$X$Y",
            '"$X,1"',
        )

    def _assignment(self) -> str:
        name = self._one(N, N, N, N, N, ORDER, "X", "i", "GPU", "CUDA_VISIBLE_DEVICE", "LR")
        value = self._one("PCI_BUS_ID", "FASTEST_FIRST") if name == ORDER else self._value()
        return f"{name}{self._one('=', '=', '=', '=', '+=')}{value}"

    def _assignments(self) -> str:
        count = self._chance.choice((0, 1, 1, 1, 2))
        return "".join(f"{self._assignment()} " for _ in range(count))

    def _wrapper(self) -> str:
        return self._one(
            "",
            "",
            "",
            "nohup ",
            "env ",
            f"env {self._assignment()} ",
            "nice -n 5 ",
            "nice ",
            "time ",
            f"time {self._assignment()} ",
            "timeout 5 ",
            "timeout -k 1 5s ",
            "stdbuf -oL ",
            "setsid -w ",
            "exec ",
            f"env -u {N} ",
            "env -u X ",
            "command ",
            "taskset -c 0 ",
            "taskset 1 ",
            f"env -u{N} ",
            "exec -a me ",
            "nohup nice -n1 ",
            "builtin ",
            "ionice -c 3 ",
            "env -S 'X=1 ' ",
            "timeout --signal=TERM 5 ",
            "chrt -b 0 ",
            "/usr/bin/env ",
            "\\nohup ",
            "'env' ",
            "nice -5 ",
            "stdbuf -o L -e0 ",
            "command -p env ",
        )

    def _program(self) -> str:
        name = self._one(*PROGRAMS, "python", "python")
        rest = self._one(
            " train.py",
            " t.py --lr 1e-3",
            " -m pkg --gpu 0",
            f" t.py {N}=3",
            ' t.py "$@"',
            " t.py *.txt",
            f" t.py --gpus ${N}",
            " -u t.py --x='a b'",
            " t.py # on GPU 3",
            "",
        )
        return name + rest

    def _redirect(self) -> str:
        return self._one(
            "",
            "",
            "",
            " > log 2>&1",
            " &> log",
            " | tee log",
            " 2>/dev/null | cat",
            " < /dev/null",
            " >> log",
            " |& cat",
            " 2>&1 | grep -v x",
        )

    def _simple(self, _depth: int = 0) -> str:
        program = self._program()
        redirect = "" if "#" in program else self._redirect()
        text = f"{self._assignments()}{self._wrapper()}{program}{redirect}"
        if self._chance.random() < 0.1:
            text = text.replace(" ", " \\\n  ", 1)
        background = "" if "#" in program else self._one("", "", "", " &")
        return text + background

    def _state(self, _depth: int = 0) -> str:
        """Change variables only."""
        a = self._assignment()
        return self._one(
            a,
            f"export {a}",
            f"export {a} {self._assignment()}",
            f"{a}\nexport {N}",
            f"unset {N}",
            f"export -n {N}",
            f"declare -x {a}",
            f"typeset -x {a}",
            f"export {N}",
            "set -a",
            "set +a",
            "set -e",
            "cd src",
            f"readonly X=1; {a}",
            f"export {N}=1; unset -v {N}",
            f"local {a}",
            f"declare {a}",
            "X=2",
            "GPU=1",
            "i=0",
            "((i++))",
            "let i=i+1",
            "read X <<< 3",
            "printf -v X 5",
            f"eval 'export {a}'",
            f"eval {a}",
            "true",
            "false",
            "echo hi",
            f"echo ${N}",
            f": ${{{N}:=2}}",
            f"{a} :",
            f"{a} eval true",
            f'[ -z "${N}" ] && export {a}',
            f"test -n '' || {a}",
            f"export {N}={self._value()} && true",
            "set -- 4 5",
            "shift",
            f"unset X {N}",
            f"export {a} &",
            f"({a})",
            f"declare -r Y=1; {a}",
            f"export -- {a}",
            f'export "{N}"=1',
            f"export {N}",
            f"{N}=1 export X=2",
            f"X={N}",
            "declare $X=1",
            "export $X=3",
            f"true && {a} || X=9",
            f"! {a}",
            "return",
            "exit 0",
        )

    def _joined(self, depth: int) -> str:
        left, right = self._line(depth - 1).rstrip("& "), self._line(depth - 1)
        if "#" in left or "\n" in left:
            return f"{left}\n{right}"
        return f"{left}{self._one(' && ', ' || ', '; ', ' | ', ' & ', '; ', ' && ')}{right}"

    def _block(self, depth: int) -> str:
        return "\n".join(self._line(depth - 1) for _ in range(self._chance.choice((1, 1, 2))))

    def _compound(self, depth: int) -> str:
        body, other = self._block(depth), self._block(depth)
        state = self._state()
        return self._one(
            f"({body}\n)",
            f"{{ {body}\n}}",
            f"if true; then\n{body}\nfi",
            f"if [ -d src ]; then\n{body}\nelse\n{other}\nfi",
            f"for i in 0 1; do\n{body}\ndone",
            f"for i in 1; do\n{body}\ndone",
            f"for X in 2 2; do {body}\ndone",
            f"while read i; do\n{body}\ndone < /dev/null",
            f"f() {{\n{body}\n}}\nf",
            f"f() {{\n{body}\n}}\nf 2 3\n{state}",
            f"case x in\nx) {body}\n;;\n*) {other}\n;;\nesac",
            f"for ((i=0;i<2;i++)); do\n{body}\ndone",
            f"f() {{ {state}\n}}\nf\n{other}",
            f"if false; then\n{body}\nelif true; then\n{other}\nfi",
            f"until true; do\n{body}\ndone",
            f"( {state}\n)\n{other}",
            f"{{ {state}\n}} && {other}",
            f"for i in $(echo 1); do\n{body}\ndone",
            f"for i in {{0..1}}; do {body}\ndone",
            f"f() ( {state}\n)\nf\n{other}",
            f"i=0\nwhile [ $i -lt 2 ]; do\n{body}\ni=$((i+1))\ndone",
            f"for i in 0 1 2; do [ $i = 1 ] && continue\n{body}\ndone",
            f"for i in 0 1; do {state}\nbreak\ndone\n{other}",
            f"O=$({body}\n)",
            f"O=$({state}; echo)\n{other}",
            f"function f {{\n{body}\n}}\nX=2 f",
            f"{N}=1 f() {{ :; }}\n{body}",
            f"if ! true; then {body}\nfi\n{other}",
            f"{{ {body}\n}} > log 2>&1 &\nwait",
            f"time {{ {body}\n}}",
            f"if {state}; then\n{body}\nfi",
            f"[[ a == a ]] && {{ {state}\n}}\n{other}",
            f"alias python='{N}=3 python'\n{body}",
        )

    def _inner(self, depth: int) -> str:
        """A shell inside of a shell."""
        text = self._line(depth - 1)
        single = "'" + text.replace("'", "'\\''") + "'"
        before = self._one("", self._assignments(), "nohup ", "nohup env X=1 ")
        double = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return self._one(
            f"{before}bash -c {single}",
            f"{before}sh -c {single}",
            f"{before}bash -lc {single} > log 2>&1",
            f"eval {single}",
            f"{before}bash <<'EOF'\n{text}\nEOF",
            f"{before}bash <<EOF\n{text}\nEOF",
            f"{before}bash -c {double}",
            f"{before}bash -ec {single} name 1 2",
            f"{before}bash -s <<'EOF'\n{text}\nEOF",
            f"cat > s.sh <<'EOF'\n{text}\nEOF\nbash s.sh",
            f"echo {single} | bash",
            f"{before}bash <<< {single}",
            f"echo {single}",
            f"{before}sh <<'EOF' > log\n{text}\nEOF",
            f"echo {single} > s.sh; . ./s.sh",
            f"source <(echo {single})",
            f'X={single}; eval "$X"',
            f"{before}xargs -I{{}} sh -c {single} < /dev/null",
        )
