"""gputop beside its peers, on a simulated machine with real processes: `python -m bench`.

machines.py   what they run on
programs.py   who runs, and what to look for on the screens
tty.py        a terminal that notes when each byte came, and looks at it afterwards
tree.py       what a program and its children have used
oneshot.py    what a command costs from its start to its end
measures.py   the measurements
report.py     tables and JSON
medians.py    several runs in one table, for the manual
"""
