"""Any state of a run in a shelf: nested containers, tensors, and objects that have a state.

What is saved is a tree. Its tensors lie in the shelf under names that follow from their paths; all
else is one more tensor of bytes, encoded with msgpack: nothing is pickled, and no code of what was
saved runs when it is loaded.

    paths     where something lies in a state: for names and for errors
    plain     leaves that are no tensors, to nodes of the tree and back
    tensors   leaves that are: which are one, which share memory
    objects   models, optimizers, generators, and what else has a state
    split     tensors of which the ranks of a group have pieces
    flatten   a state to its tree and its tensors
    record    the tree as bytes in a shelf
    save, load
"""
