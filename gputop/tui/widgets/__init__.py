"""Line widgets: each draws with render_line and knows nothing of its neighbours.

lines.py          Lines: the base of all; draws again only lines that changed
table.py          Table: rows and a cursor that are bound to what they show, not to places
columns.py        which columns fit a width
gpus.py           the GPU rows
processes.py      the process rows
editor.py         lines to type into
mapping.py        the mapping in lines
sentences.py      what there is to say of a mapping
page.py           a text to scroll
mappingpane.py    the mapping pane: its editor and its lines
mappingtables.py  the mapping in both directions, for a whole screen
bars.py           the heading, the rules between panes, the keys
"""
