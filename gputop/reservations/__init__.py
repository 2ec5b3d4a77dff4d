"""Reservations of GPUs, without a server: files that a process holds a lock on.

    folder.py   where they are: a folder that all users may write to and only owners delete from
    locks.py    reading them: users and GPUs
    hold.py     taking one, keeping it over exec, releasing it
    holder.py   the process that keeps one for `gputop reserve`

A reservation is a file `UUID.RANDOM` on which its owner holds an open file description lock for
writing (OFD, fcntl_locking(2)). The kernel vouches for what counts: the user is the file's owner,
the time is its ctime, and it is valid while it is locked. The lock ends with the last process that
inherited the descriptor, however that died. The file's content is only what its owner claims.

Why these locks: F_OFD_GETLK shows whether one is held without taking it, so that no reader makes a
taker fail; they survive exec and fork; and only users who may write to the file can take one for
writing. flock(2) lacks the first and the last. Why a file for each reservation, and not one for
each GPU: no user has to open, believe or clean up a file that another user has made.

Choosing and taking GPUs is done under one lock for all users, flock on the folder itself: there is
no lock file that another user could replace.
"""
