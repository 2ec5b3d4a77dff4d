"""Recordings: the messages of a machine on disk.

A recording is one data file, or a folder of them, one a day (of UTC); of several hosts, a folder
with such a folder for each. What a reader keeps and does, and so what a recorder writes, has bounds
in bytes, items and work: whoever made a recording may be hostile. A data file is a sequence of
records, appended and never changed: each an IndexEntry of fixed size, then a payload. The file
`NAME.index` repeats the IndexEntries one after the other, so that readers need not search for them;
those that it lacks, because it is cut, damaged or missing, are found in the data file. An
IndexEntry is valid if its own checksum fits, a payload if the one in its IndexEntry does.

    entries.py   the IndexEntry, and how those of a file are found
    chunks.py    frames into payloads and back, a chunk at a time; knows no files
    datafile.py  one data file with its index, as it is read
    reader.py    Recording: what there is of each host, and the frame of an instant
    output.py    one data file with its index, as it is written
    days.py      the files of a folder, and which of them are deleted
    writer.py    RecordingWriter: appends frames; in a folder each host has one of its own
    contents.py  what is recorded of a frame, and how precisely
    sums.py      what was counted of a day, kept beside its data file
    counting.py  counts what is recorded, with the sums of days and without; makes these

A payload is a part of a zlib stream, flushed so that it can be read at once; unpacked it is lines
of the protocol: InventoryUpdates and a Sample. The first payload of a chunk begins a new zlib
stream and a new stream of the protocol, with a Hello and the whole inventory: to get one frame, a
reader reads its chunk up to it, and nothing before. Each host has chunks of its own.
"""
