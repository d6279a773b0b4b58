"""Whole versions of a shelf, copied to a remote place in the background, and brought back.

options       what a user asks for
remote        a place where objects lie; directory and objects are its two kinds
layout        which bytes of which tensors make one piece
codec         pieces, compressed
manifest      what one object says of a version: it is the commit
catalog       the versions that lie at a remote
stage         a version is pinned, and read into a spool
upload        what of that the remote lacks is sent
retain        what stays, and what is deleted
site          one place, and one more version of it: pieces, then the manifest
side_by_side  threads that share such work
metrics       what steps are worth
standing      how far a drain has come
copier        the thread that does all this, one version after the other
drainer       a drain as a program sees it; info: what it tells
fetch         a shelf made of a version that lies at a remote
"""
