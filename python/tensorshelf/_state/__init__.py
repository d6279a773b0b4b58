"""Any state of a run in a shelf: nested containers, tensors, and objects that have a state.

What is saved is a tree. Its tensors lie in the shelf under names that follow from their paths; all
else is one more tensor of bytes, encoded with msgpack: nothing is pickled, and no code of what was
saved runs when it is loaded.

    paths        where something lies in a state: for names and for errors
    plain        leaves that are no tensors, to nodes of the tree and back
    tensors      leaves that are: which are one, which share memory
    objects      models, optimizers, generators, and what else has a state
    schedules    whether a schedule of torch's own may take a state
    shards       parts of tensors that are sharded over the ranks of a group
    split        tensors that ranks hold alike, of which each saves a piece
    writers      which ranks of a group have pieces of a tensor
    flatten      a state to its tree and its tensors
    record       the tree as bytes in a shelf
    room         bytes in a tensor that has room to grow
    save         shelf.save(): a state becomes the newest version
    again        a state that was flattened once, looked at again
    looks        what a look at a part of a state is, and what it finds
    keys         whether those of a mapping are still exactly those
    memories     where torch tensors lie, and whether they still do
    rows         what an optimizer keeps of each parameter, column by column
    checked      what of a stored record may be believed
    nodes        nodes of the tree, and what they stand for
    rename       a saved state under other keys
    reader       the tensors of a saved state: all that are wanted, then all are read
    jobs         reads of tensors, each by whatever thread
    ahead        reading that goes on while what it has read is used
    targets      memory that a saved tensor is read into
    load         shelf.load(): a saved state as values
    fill         shelf.load_into(): a saved state into what is there
    matching     whether what is there and what was saved are alike, tensor by tensor
    groups       the groups of an optimizer, beside those of one that was saved
    alike        whether groups of an optimizer have the same options
    load_report  what load_into() tells of keys
"""
