"""What keeps a benchmark from being run."""


class CannotMeasureError(Exception):
    """A row cannot be measured here: data, a package or a service is missing."""
