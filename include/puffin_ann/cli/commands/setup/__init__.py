"""Commands that prepare: `quickstart`, `init`, `check`, `doctor`, `compile`, `size`."""
