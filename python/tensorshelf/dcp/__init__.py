"""Shelves as the storage of ``torch.distributed.checkpoint``: many ranks, one commit for all."""
