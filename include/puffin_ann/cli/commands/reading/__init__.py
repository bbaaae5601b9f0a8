"""Commands that only read: `search`, `warm`, `status`, `history`, `inspect`, `list`."""
