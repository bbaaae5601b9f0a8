"""Nearest-neighbour algorithms over arrays; nothing here knows bytes, files or tables."""
