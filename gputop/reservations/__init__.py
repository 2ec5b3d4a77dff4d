"""Reservations of GPUs, without a server: files that somebody holds a lock on.

    folder.py   where they are: a folder that everybody may write to and only owners delete from
    locks.py    reading: whose they are, and which GPU
    hold.py     taking one, keeping it over exec, letting it go
    holder.py   the process that keeps one for `gputop reserve`

A reservation is a file `UUID.RANDOM` that its owner holds an open file description lock for writing
on (OFD, fcntl_locking(2)). The kernel says what counts: who made the file is its owner, when is its
ctime, and whether it still counts is the lock, which ends with the last process that inherited the
descriptor, however that died. What is written in the file is its owner's word, and shown as such.

Why these locks: whether one is held can be asked (F_OFD_GETLK) without taking it, so that no reader
makes a taker fail; they survive exec and fork; and only who may write to the file can take one for
writing. flock(2) can do neither of the first and last. Why a file of one's own, and not one per GPU
for everybody: nobody has to open, believe or clean up what another user has made.

Who chooses and takes does so under one lock for everybody, flock on the folder itself: there is no
file for it that somebody could replace, and /proc/locks names who holds it.

`queue.RANDOM` is a place in the queue of those who wait, the oldest first.
"""
