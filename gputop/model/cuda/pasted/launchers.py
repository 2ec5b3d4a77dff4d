"""Commands that start a program elsewhere, or set the variable for it: ssh, containers, Slurm, MPI.

Sources: docker-run(1) and moby's nvidia_linux.go (--gpus N is 0..N-1); apptainer's manual, NVIDIA
GPUs and environment; srun(1), sbatch(1): --export, --gres; mpirun(1): -x; accelerate's launch
(--gpu_ids) and DeepSpeed's launcher (--include, --num_gpus).
"""

from __future__ import annotations

import re

from gputop.model.cuda.advice import mistake
from gputop.model.cuda.pasted.outcome import (
    CONCERNED,
    PastedValue,
    UnclearError,
    UndecidedError,
    Unknown,
)
from gputop.model.cuda.pasted.shell import Shell
from gputop.model.cuda.pasted.words import Argument, Command
from gputop.model.cuda.pasted.wrappers import (
    WRAPPERS,
    Rest,
    Wrapper,
    WrapperOptions,
    give,
    set_variable,
    split,
)
from gputop.model.machine.environment import CONTAINER, NAME

# --- containers ----------------------------------------------------------------------------------

_DOCKER_RUN = (
    "-d -i -t -P --rm --init --privileged --detach --interactive --tty --read-only --quiet -q",
    "-v -p -w -u -h -m -l -e --env --env-file --gpus --name --volume --publish --workdir --user"
    " --hostname --memory --shm-size --ipc --network --net --runtime --ulimit --mount --entrypoint"
    " --restart --cpus --cpuset-cpus --cap-add --cap-drop --device --security-opt --label --pid"
    " --platform --pull --group-add --log-driver --log-opt --add-host --dns --tmpfs --userns",
)
_DEVICES = re.compile(r"device=([^\"',]+)|([\"'])device=([^\"']+)\2")


def _docker(shell: Shell, command: Command) -> Rest:
    """Follow docker run: the image's program gets the variables of -e and the GPUs of --gpus."""
    rest = command.arguments
    rest = rest[1:] if rest and rest[0].word == "container" else rest
    verb = rest[0].word if rest else ""
    if verb == "exec":
        raise UndecidedError("the GPUs are counted inside of a container that runs already")
    if verb not in ("run", "create"):
        return []
    options, words = split(f"{command.name} {verb}", rest[1:], *_DOCKER_RUN)
    if "--env-file" in options:
        raise UndecidedError("the variables stand in a file (--env-file)")
    before = shell.variables.all_inherited()
    shell.variables.clear()
    shell.local = set()
    give(shell, options["-e"] + options["--env"], before)
    shell.variables.gpus = _gpus_of(options, shell.variables.inherited(CONTAINER))
    return [*options["--entrypoint"], *words[1:]] or None


def _gpus_of(options: WrapperOptions, variable: PastedValue) -> PastedValue:
    """Read --gpus and --device as NVIDIA_VISIBLE_DEVICES, which may be set as well (`variable`)."""
    cdi = "nvidia.com/gpu="
    names = [name.word for name in options["--device"]]
    devices = [name.removeprefix(cdi) for name in names if name.startswith(cdi)]
    if devices:
        return "all" if "all" in devices else ",".join(devices)
    gpus = next(reversed(options["--gpus"]), None)
    if gpus is not None and isinstance(gpus.text, Unknown):
        return gpus.text
    if gpus is not None and variable is not None:
        raise UndecidedError(f"which counts of --gpus and {CONTAINER} depends on Docker's settings")
    if variable is not None:
        return variable
    if gpus is None:
        raise UndecidedError(
            "no --gpus gives the container GPUs: which it has depends on Docker's own settings"
        )
    return _gpus(gpus.word)


def _gpus(text: str) -> PastedValue:
    if text == "all":
        return "all"
    if re.fullmatch("[0-9]{1,2}", text):
        return ",".join(map(str, range(int(text)))) or "none"
    match = _DEVICES.fullmatch(text)
    if match is None:
        return Unknown(f"--gpus {text[:40]} is not read: several are '\"device=0,1\"'")
    return match[1] or match[3]


_APPTAINER_RUN = (
    "--nv -e --cleanenv -c --contain -C --containall --writable --writable-tmpfs -w --fakeroot -f"
    " --no-home --pid --ipc --net --userns -u",
    "-B --bind --env -H --home --pwd -W --workdir -S --scratch -o --overlay --app --mount --cwd",
)


def _apptainer(shell: Shell, command: Command) -> Rest:
    """Follow apptainer: it passes its caller's variables on, unless -e; --nv gives all GPUs."""
    name, rest = command.name, command.arguments
    verb = rest[0].word if rest else ""
    if verb not in ("exec", "run", "shell"):
        return []
    options, words = split(f"{name} {verb}", rest[1:], *_APPTAINER_RUN)
    if "--nv" not in options:
        raise UndecidedError(f"without --nv {name} may give the container no GPU")
    prefixed = {variable: value for variable in CONCERNED
                for prefix in ("APPTAINERENV_", "SINGULARITYENV_")
                if (value := shell.variables.inherited(prefix + variable)) is not None}  # fmt: skip
    if options.keys() & {"-e", "--cleanenv", "-C", "--containall"}:
        shell.variables.clear()
    for variable, value in prefixed.items():
        set_variable(shell, variable, value)
    if any(re.match("[^=]*=.*,[^,]*=", v.word, re.DOTALL) for v in options["--env"]):
        raise UnclearError("several variables in one --env are not followed")
    give(shell, options["--env"])
    shell.variables.gpus = "all"
    return words[1:] or None


# --- other machines ------------------------------------------------------------------------------

_SSH = ("-4 -6 -A -a -C -f -G -g -K -k -M -N -n -q -s -T -t -tt -V -v -X -x -Y -y",
        "-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w")  # fmt: skip


def _ssh(shell: Shell, command: Command) -> Rest:
    """Follow ssh: the other machine's shell gets the words as one text, and no variables."""
    options, rest = split("ssh", command.arguments, *_SSH)
    if any("Env" in setting.word for setting in options["-o"]):
        raise UnclearError("SendEnv and SetEnv of ssh are not followed")
    if not rest:
        return []
    host, words = rest[0].word or "elsewhere", rest[1:]
    if words[0].word.startswith("-") if words else command.input.document is None:
        raise UnclearError(f"it starts a shell on {host}, or has options behind its name")
    carried = shell.variables.inherited(NAME)
    shell.variables.clear()
    shell.variables.values = dict.fromkeys(CONCERNED)
    shell.trace.say(mistake("shell-remote", name=host))
    if isinstance(carried, str):
        shell.trace.say(mistake("shell-not-remote", name=host, value=carried))
    if words:
        shell.follow_words(*words)
    else:
        shell.follow_document(command.input)
    return []


# --- Slurm ---------------------------------------------------------------------------------------

_GPU_OPTIONS = ("-G --gres --gpus --gpus-per-node --gpus-per-task --gpus-per-socket --gpu-bind"
                " --tres-per-task")  # fmt: skip
_SLURM = (
    "-l -u -v -Q -O -E -s -k -K -I --pty --exclusive --unbuffered --label --overlap --exact"
    " --parsable --requeue --wait",
    "-A -a -B -C -c -D -d -e -F -i -J -L -m -M -N -n -o -p -q -t -w -x --account --array"
    " --constraint --cpus-per-task --chdir --dependency --error --job-name --output --mem"
    " --mem-per-cpu --nodes --ntasks --ntasks-per-node --partition --qos --time --nodelist"
    f" --exclude --export --cpu-bind --mpi --wrap --jobid --reservation {_GPU_OPTIONS}",
)
SLURM_SETS = "Slurm sets the variable itself where GPUs are asked for, and renumbers them"


def _slurm(shell: Shell, command: Command) -> Rest:
    """Follow srun and sbatch: --export says what is passed on; Slurm sets it for GPUs asked for."""
    options, rest = split(command.name, command.arguments, *_SLURM)
    if options.keys() & set(_GPU_OPTIONS.split()):
        raise UndecidedError(SLURM_SETS)
    shell.trace.say(mistake("shell-slurm"))
    for names in options["--export"]:
        _export(shell, names)
    if options["--wrap"]:
        shell.follow_words(options["--wrap"][0])
        return []
    if command.name == "sbatch" and not rest:
        if command.input.document is None:
            raise UndecidedError("the job's script is not told")
        shell.follow_document(command.input)
    return None if command.name == "salloc" and not rest else rest


def _export(shell: Shell, argument: Argument) -> None:
    """Do what --export=ALL,NAME=VALUE says; a comma ends a value unless it is in quotes."""
    shell.account(argument)
    if isinstance(argument.text, Unknown):
        raise UndecidedError(f"--export is not told: {argument.text.reason}")
    before = shell.variables.all_inherited()
    parts = re.findall(r"(?:[^,'\"]|'[^']*'|\"[^\"]*\")+", argument.text)
    if "ALL" not in parts:
        for name in CONCERNED:
            shell.variables.set(name, None)
    for part, following in zip(parts, [*parts[1:], "ALL"], strict=False):
        name, equals, value = part.partition("=")
        if equals and re.match(r"[0-9]|GPU-|MIG-", following):
            raise UndecidedError("a comma ends a value of --export: write it in quotes of its own")
        if equals or name in before:
            set_variable(shell, name, value.strip("'\"") if equals else before[name])


# --- launchers of workers ------------------------------------------------------------------------

_HOSTS = "-H --host -host --hostfile -hostfile -f"
_MPI = ("--allow-run-as-root --oversubscribe -l --tag-output -v -q",
        "-n -np --np -c -N -ppn --bind-to --map-by --rank-by -wdir --wdir -npernode -x"
        f" {_HOSTS}")  # fmt: skip


def _mpirun(shell: Shell, command: Command) -> Rest:
    """Follow Open MPI's mpirun, with -x NAME=VALUE."""
    options, rest = split(command.name, command.arguments, *_MPI)
    if any(word.word == ":" for word in rest):
        raise UnclearError("several programs of one mpirun are not followed")
    give(shell, options["-x"], shell.variables.all_inherited())
    if options.keys() & set(_HOSTS.split()):
        shell.trace.say(mistake("shell-remote", name="the hosts of mpirun"))
    return rest


def _own_options(command: Command, names: str) -> list[tuple[str, Argument]]:
    options: list[tuple[str, Argument]] = []
    following = [*command.arguments[1:], Argument("")]
    for argument, behind in zip(command.arguments, following, strict=False):
        flag, equals, value = argument.word.partition("=")
        if flag in names.split():
            options.append((flag, Argument(value) if equals else behind))
        elif flag.endswith(".py"):
            break
    return options


def _launches(shell: Shell, command: Command, value: str) -> None:
    set_variable(shell, NAME, value)
    shell.trace.say(mistake("shell-launcher", name=command.name, value=value))


def _accelerate(shell: Shell, command: Command) -> Rest:
    """Follow accelerate: --gpu_ids sets the variable, whatever its value was."""
    for _, numbers in _own_options(command, "--gpu_ids --gpu-ids"):
        if isinstance(numbers.text, Unknown):
            raise UndecidedError("the value of --gpu_ids is not told")
        if numbers.word != "all":
            _launches(shell, command, numbers.word)
    return None


def _deepspeed(shell: Shell, command: Command) -> Rest:
    """Follow deepspeed: --include host:LIST, --num_gpus N set it; versions differ if it is set."""
    names = "-i --include --num_gpus --num_accelerators -e --exclude -H --hostfile --num_nodes"
    options = _own_options(command, names)
    if not options:
        return None
    flag, value = options[0][0], options[0][1].word
    match = re.fullmatch(r"(?:localhost|127\.0\.0\.1):([0-9]+(?:,[0-9]+)*)|([0-9]{1,2})", value)
    if len(options) > 1 or match is None or (match[1] is None) == (flag in ("-i", "--include")):
        raise UndecidedError(f"DeepSpeed's {flag} {value[:40]} is not followed")
    if shell.variables.inherited(NAME) is not None:
        raise UndecidedError("DeepSpeed's versions differ on which of the two it heeds")
    numbers = {int(n) for n in match[1].split(",")} if match[1] else range(int(match[2]))
    _launches(shell, command, ",".join(map(str, sorted(numbers))))
    return None


STARTERS: dict[str, Wrapper] = {
    **WRAPPERS,
    **dict.fromkeys(("docker", "podman", "nerdctl"), _docker),
    **dict.fromkeys(("apptainer", "singularity"), _apptainer),
    "ssh": _ssh,
    **dict.fromkeys(("srun", "sbatch", "salloc"), _slurm),
    **dict.fromkeys(("mpirun", "mpiexec", "orterun"), _mpirun),
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
}
"""Commands that start others, here and elsewhere."""
