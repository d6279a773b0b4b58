"""Ranks of a job that save together: one version over all their shelves.

    group       Group, which a user makes
    part        whose part of which epoch a shelf holds
    places      open_part: who takes which part, by the shelves that each rank finds
    start       what all go on from, agreed on before anything is loaded
    together    Together: how a save of a rank begins, and ends
    member      a thread for each rank: its votes, and what it does at a decision
    routes      which way the votes go
    station     a rank's place on it: whose votes it takes
    taker       the thread that takes them
    coordinate  what it does on rank 0: decisions
    relay       what it does on the first rank of another node
    awaited     whose votes are missing
    schedule    the interval at which all save, with every="auto"
    alike       what data-parallel ranks hold alike
    parted      a state of which a rank saves its pieces of that
    drift       whether it is alike, chunk by chunk
    exchange    pieces whole again on all ranks, at a start: by a ring
    pieced      and in the shelf that merge() makes
    wire        what carries their messages

Who decides what is `src/group` (include/tensorshelf/group.hpp), and no line of it is here.
"""
