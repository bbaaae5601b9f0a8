"""Benchmarks against what users would pick instead; `make bench` runs them."""
