"""Recordings: the messages of a machine on disk.

A recording is one data file, or a folder of them, one a day (of UTC). A data file is a row of
records that are appended and never changed: an IndexEntry of fixed size, then a payload. The file
`NAME.index` has the IndexEntries again, one after the other, so that nobody has to look for them;
of what it lacks, because it is cut, damaged or not there, they are found in the data file. An
IndexEntry counts if its own checksum fits, a payload if the one in its IndexEntry does.

    entries.py   the IndexEntry, and how those of a file are found
    chunks.py    frames into payloads and back, a chunk at a time; knows no files
    datafile.py  one data file with its index, as it is read
    reader.py    Recording: what there is of each host, and the frame of an instant
    output.py    one data file with its index, as it is written
    days.py      the files of a folder, and which of them are deleted
    writer.py    RecordingWriter: appends frames
    contents.py  what of a frame is recorded, and how finely

A payload is a part of a zlib stream, flushed so that it can be read at once; unpacked it is lines
of the protocol: InventoryUpdates and a Sample. The first payload of a chunk begins another zlib
stream and another stream of the protocol, with a Hello and the whole inventory: a reader who
wants one frame reads the chunk up to it, and nothing before. Each host has chunks of its own.
"""
