"""Ranks of a job that save together: one version over all their shelves.

A group, and its start:
    group       Group, which a user makes; checked: what it, and what reads, is given
    part        whose part of which epoch a shelf holds
    places      open_part: looks for shelves; placing: which rank takes which
    start       what all go on from, agreed on before anything is loaded; started: what is had then
    offer       what a rank has found; agree: what rank 0 makes of all offers
    naming      what all do next is called, so that none hears what was said before
    council     how all tell rank 0, and hear what it makes of that
    wire        what carries messages
A save:
    together    Together: how a save of a rank begins, and ends
    group_save  a rank's part of a save
    member      a thread for each rank: its votes, and what it does at a decision
    routes      which way votes go; station: a rank's place on it; taker: the thread that takes them
    posted      what they post to each other
    coordinate  what that thread does on rank 0: decisions; relay: on the first rank of another node
    awaited     whose votes are missing
    schedule    the interval at which all save, with every="auto"
    moments     what a rank did when
    drains      which version all ranks drain next
Copies with other ranks:
    replicas    those of a rank's part, and those that it keeps
    copies      the owner's end; kept: the keeper's; stream: what is sent between them
    link        pairs that bytes go over
    renewal     copies made anew behind a start
Pieces of what all hold alike:
    alike       what that is; parted: a state of which a rank saves its pieces
    writers     which ranks save pieces; drive: which drive a rank's shelf lies on
    drift       whether it is alike, chunk by chunk
    exchange    whole again on all ranks, at a start; stage: where all wait for all
    ring        how the bytes go; hall, hall_ring: by memory that ranks of one machine share
All ranks' shelves as one:
    saved       what each has; whole: the tree of all; pieces, pieced: parts that make a tensor
    state       what is read where it lies; joined: a tensor of it; shared: by so many ranks
    view        open_merged; own: what is of one rank alone
    merge       a shelf of all; export: a file of safetensors

Who commits what, `src/group` decides (include/tensorshelf/group.hpp). Before that a yes is made a
no here, where ranks saved other steps (coordinate) or differ in what is alike (drift).
"""
