"""gputop beside its peers, on a simulated machine with real processes: `python -m bench`.

machines.py   the simulated machines
programs.py   the programs, and what to look for on their screens
tty.py        a terminal that notes when output came, and shows it afterwards
tree.py       what a program and its children have used
oneshot.py    what a command costs from its start to its end
measures.py   the measurements of a screen
suite.py      which measurements are made on which machine
report.py     tables and JSON
manual.py     the table of the manual: `python -m bench --manual`
"""
