"""Texts that people paste, and the CUDA_VISIBLE_DEVICES of the program that they start.

    outcome     the answer to a text, and the errors if there is none
    cleaning    prompts, fences and list marks that stand around a text
    reading     which language a text is in
    variables   a shell's variables while it is followed
    words       tree-sitter's grammar of bash; the words of a command after expansion
    shell       a POSIX shell or bash, followed step by step
    wrappers    commands that start another: nohup, env, sudo, tmux; their options
    launchers   commands that lead elsewhere: containers, ssh, Slurm, MPI
    commands    one command of a shell: what it starts, and with which variables
    programs    names of commands
    dialects    lines of other shells and languages, written as bash
    python      os.environ and the like in Python
    config      Docker, Compose, Kubernetes, systemd, JSON, TOML
    meaning     what a text means on a machine

The rule that keeps the answer honest: each occurrence of the variables' names in a text must be
accounted for by the step that understood it (`Shell.account`, `_Program.follow`, the count in
config). If one is left over, nothing is claimed about the text. Nothing here runs anything.
"""
