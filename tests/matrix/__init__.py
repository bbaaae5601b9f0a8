"""The wheel beside the versions that people have: `make test-matrix`."""
