"""Counts as people write them."""


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 row`, `2,000 rows`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
