"""Whole versions of a shelf, copied to a remote place in the background, and brought back.

options       what a user asks for
remote        a place where objects lie; directory, objects: its two kinds
layout        which bytes of which tensors make one piece
codec         pieces, compressed
manifest      what one object says of a version: it is the commit; joint: of a version of a group
catalog       the versions that lie at a remote
stage         a version is pinned, and read into a spool
upload        what of that the remote lacks is sent
retain        what stays, and what is deleted
writer        names of what a job commits
place         one place, and one more version of it: pieces, then the manifest
site          the place of a shelf that saves alone; rank_site: of a rank, and what all have
roll          which ranks have put their parts
side_by_side  threads that share such work
metrics       what steps are worth
standing      how far a drain has come
copier        the thread that does all this, one version after the other
alone         which one a shelf alone copies next; rank: a rank of a group
meeting       where the drains of a group agree on that
drainer       a drain as a program sees it; info: what it tells
fetch         a shelf made of a version that lies at a remote
"""
