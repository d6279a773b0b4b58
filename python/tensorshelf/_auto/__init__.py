"""Saving a run as it goes: when, what of the loader and the generators, and how it ends.

autosave      the whole of it: when a run is saved, resumed, and what is told of failures
options       what it is told besides the state that it saves
checked       whether what it is given can be, before anything is done
run           what a run consists of; going on with it from what the shelf holds
steps         which steps were told of, and which of them a save has
notices       what it tells, and what of that once alone
flight        the save on its way; where a failure is met, and where it goes from there
commits       how a save becomes a version: by itself, or with those of other ranks
feed          one state, saved again and again by the pipeline
save_plan     where its tensors lie, and what brings the rest of it up to date
gated         memory that nothing changes before an optimizer steps
early         what torch counts as changed before it was copied
behind        what a loop changes behind a save, and before its next batch
gates         optimizers wait until what they step is copied
gradients     steps in the middle of adding up gradients; gradients as a part of the state
batches       a loader that resumes where it was
loaders       all that a run has
loader_facts  what is asked of a loader
place         one, as it is saved, and whether a loader can go on there
rng           the generators that a program uses without naming them
signals       SIGTERM: what is in flight lands first
interval      the steps between two saves, by what was measured
weak          methods that are called for as long as their object is there
plan          how often saving pays
measured      what steps and saves cost, as medians
start         what is saved how, told once
timeline      when the trainer and the saves did what
trace         the same as a Chrome trace
joined        those of all ranks of a group as one
report        where the time of a run went, as one page with pictures
files         traces and reports, written
ending        things that are ended one after the other, whatever those before raised
"""
