"""The Puffin container: a reader and a writer that know bytes and streams, not what they mean.

`docs/format.md` has the layout; `layout` holds it as numpy dtypes, `metadata` the footer's JSON,
`codecs` the compression and `limits` what it may unpack to, `streams` what is asked of files,
`footer` the footer's bytes, `reader` and `writer` the two sides of a file.
"""

from puffin_ann.puffin.metadata import BlobMetadata, FileMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.puffin.writer import FinishedFile, PuffinWriter

__all__ = ["BlobMetadata", "FileMetadata", "FinishedFile", "PuffinReader", "PuffinWriter"]
