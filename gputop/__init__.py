"""gputop: who is on which GPU, and which GPU is cuda:0.

    __main__.py starts the agent before anything is imported, then the command line
    lean.py     what an agent does not import
    cli.py      the command line; the only place that prints errors and picks exit codes
    onelook.py  --once and --json in a child that the driver may hold
    parser.py   the options, and the commands with theirs
    session.py  the settings of one run
    settings.py defaults, file, environment, flags
    allowed.py  what options and settings may be
    firstlook.py  the first frame, painted while the screen is still being loaded
    commands/   the sub-commands, a module each
    errors.py   the exception tree
    model/      what a GPU machine is: plain data and pure functions, no I/O
    agent/      runs on the GPU machine: reads the driver and the processes, makes frames
        gpu/        the driver: one GPU by one thread, a module for each subject
        process/    what each process is, where it belongs, what it was started with
        signalling/ signals through a pidfd, and what became of each process
        doctor/     what is installed
    sources/    where frames come from: a local agent, the demo
    export/     frames leaving without a TUI: text and JSON
    tui/        the screen; the only package that imports textual or rich

A Frame (`model/frame.py`) is everything known of one machine at one instant. The agent makes
frames, everything else reads them.
"""

__version__ = "0.1.0"
