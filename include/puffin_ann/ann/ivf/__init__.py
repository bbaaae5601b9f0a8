"""Inverted lists: rows by their nearest centroid, with 4-bit codes and exact refinement."""
