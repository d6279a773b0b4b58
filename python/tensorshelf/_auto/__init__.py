"""Saving a run as it goes: when, what of the loader and the generators, and how it ends.

autosave   the whole of it: when a run is saved, resumed, and what is told of failures
run        what a run consists of; going on with it from what the shelf holds
steps      which steps were told of, and which of them a save has
notices    what it tells, and what of that once alone
flight     the save on its way; where a failure is met, and where it goes from there
feed       one state, saved again and again by the pipeline; the plan of where its tensors lie
early      what torch counts as changed before it was copied
gates      optimizers wait until what they step is copied
gradients  steps in the middle of adding up gradients; gradients as a part of the state
batches    a loader that resumes where it was
rng        the generators that a program uses without naming them
signals    SIGTERM: what is in flight lands first
interval   the steps between two saves, by what was measured
plan       how often saving pays
measured   what steps and saves took, for the plan
start      what is saved how, told once
timeline   when the trainer and the saves did what; a Chrome trace
report     the same as one page with pictures
"""
