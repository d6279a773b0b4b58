"""Values on their way in and out: element types, indices, sources, torch and CUDA memory.

Knows assignments of the native half, and nothing of shelves and their handles.
"""
