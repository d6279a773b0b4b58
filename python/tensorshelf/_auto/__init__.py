"""Saving a run as it goes: when, what of the loader and the generators, and how it ends.

rng       the generators that a program uses without naming them
batches   a loader that resumes where it was
signals   SIGTERM: what is in flight lands first
plan      how often saving pays
autosave  the whole of it, over shelf.save() and shelf.load_into()
"""
