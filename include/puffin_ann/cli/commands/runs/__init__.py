"""Commands that start or foretell a run: `build`, `plan`, `refresh`, `maintain`, `evaluate`."""
