"""Texts that people paste, and the CUDA_VISIBLE_DEVICES that the program they start gets.

    outcome     what is said of a text, and the ways of not knowing
    cleaning    prompts, fences and list marks that stand around a text
    reading     which language a text is in
    variables   a shell's variables while it is followed
    words       tree-sitter's grammar of bash; the words of a command after their expansions
    shell       a POSIX shell or bash, followed step by step
    wrappers    commands that start another: nohup, env, sudo, tmux; their options
    launchers   those that lead elsewhere: containers, ssh, Slurm, MPI
    commands    one command of a shell: what it starts, and with which variables
    programs    names of commands
    dialects    lines of other shells and languages, written as bash
    python      os.environ and what is like it in Python
    config      Docker, Compose, Kubernetes, systemd, JSON, TOML
    meaning     what it comes to on a machine

The rule that keeps it honest: each occurrence of the variables' names in a text must be accounted
for by the step that understood it (`Shell.account`, `_Program.follow`, the count in config). One
that is left over, and the text is not understood: nothing is claimed. Nothing here runs anything.
"""
