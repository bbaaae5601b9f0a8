"""Fixed parts of a Puffin file, as the spec lays them out: all integers little-endian.

Magic  Blob₁ … Blobₙ  Magic  FooterPayload  FooterTail
"""

import numpy as np

MAGIC = b"PFA1"

FOOTER_TAIL = np.dtype([("payload_size", "<i4"), ("flags", "<u4"), ("magic", "S4")])
"""What ends every file; the payload's size is what finds the rest of the footer."""

FLAG_COMPRESSED_PAYLOAD = 1
"""Bit 0 of `flags`: the payload is one LZ4 frame. All other bits are reserved."""

FOOTER_OVERHEAD = len(MAGIC) + FOOTER_TAIL.itemsize
"""Bytes of a footer beside its payload: 16."""

ALIGNMENT = 64
"""Bytes of which blobs begin at multiples, with zeros between them: those of a cache line. Puffin
lets gaps be. What is aligned within a blob is so in the file, and in a file mapped to memory."""

MAX_JAVA_BLOB = 2**31 - 1
"""Iceberg's Java reader holds a blob in one array, so this many bytes is the most it can read."""
