"""The coverage changes blob: what a version covers otherwise than an earlier coverage blob says.

A version of a table of many files names the coverage blob of an earlier one, and has here what
changed since. What is here grows from version to version until a whole blob is written anew.
"""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.encoding import strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version.coverage import Coverage, CoveredFiles
from puffin_ann.errors import BlobFormatError

KIND = "covc"
TYPE = "puffin-ann-coverage-changes-v1"

HEAD = np.dtype(
    [
        ("base_snapshot_id", "<i8"),
        ("files", "<u4"),
        ("removed_files", "<u4"),
        ("removed_manifests", "<u4"),
        ("reserved", "<u4"),
        ("written", "<u8"),
        ("digest", "V32"),
    ]
)
_NUMBER = np.dtype("<u4")


@dataclass(frozen=True, eq=False)
class CoverageChanges:
    """How a coverage differs from that of a blob.

    Attributes:
        base_snapshot_id: the snapshot whose rows are covered.
        files: those that the blob lacks, or of which it says something else.
        removed_files: (r,) uint32, ascending, ids of files that are not covered any more.
        manifests: paths that the blob lacks.
        removed_manifests: (m,) uint32, ascending, places in the blob's of those that went.
        written: bytes of such blobs that were written since the blob was, this one included.
        digest: the fingerprint of the blob, hexadecimal.
    """

    base_snapshot_id: int
    files: CoveredFiles
    removed_files: NDArray[np.uint32]
    manifests: tuple[str, ...]
    removed_manifests: NDArray[np.uint32]
    written: int
    digest: str

    @classmethod
    def between(
        cls, before: Coverage, after: Coverage, *, written: int, digest: str
    ) -> "CoverageChanges":
        """Return what changed.

        Args:
            before: as the blob says.
            after: what is covered now.
            written: as the attribute.
            digest: as the attribute.
        """
        old, new = before.columns, after.columns
        _, here, there = np.intersect1d(
            old.file_ids, new.file_ids, assume_unique=True, return_indices=True
        )
        same = _same(old, here, new, there)
        is_new = np.ones(len(new), np.bool_)
        is_new[there[same]] = False
        is_gone = np.ones(len(old), np.bool_)
        is_gone[here] = False
        known = {path: place for place, path in enumerate(before.manifests)}
        stays = set(after.manifests)
        gone = [place for path, place in known.items() if path not in stays]
        return cls(
            base_snapshot_id=after.base_snapshot_id,
            files=new.take(np.flatnonzero(is_new)),
            removed_files=old.file_ids[is_gone].astype(_NUMBER),
            manifests=tuple(path for path in after.manifests if path not in known),
            removed_manifests=np.array(gone, _NUMBER),
            written=written,
            digest=digest,
        )

    def applied_to(self, before: Coverage) -> Coverage:
        """Return what is covered now.

        Args:
            before: as the blob says.

        Raises:
            BlobFormatError: it is not the blob that these are changes of.
        """
        old = before.columns
        if not np.isin(self.removed_files, old.file_ids).all():
            raise BlobFormatError(f"{KIND} blob: a removed file is not in the coverage blob")
        if len(self.removed_manifests) and self.removed_manifests[-1] >= len(before.manifests):
            raise BlobFormatError(f"{KIND} blob: a removed manifest is not in the coverage blob")
        out = np.isin(old.file_ids, np.concatenate([self.removed_files, self.files.file_ids]))
        gone = set(self.removed_manifests.tolist())
        kept = [path for place, path in enumerate(before.manifests) if place not in gone]
        return Coverage(
            self.base_snapshot_id,
            old.take(np.flatnonzero(~out)).merged(self.files),
            (*kept, *self.manifests),
        )


def encode(changes: CoverageChanges) -> bytes:
    """Return the blob."""
    head = np.zeros((), HEAD)
    head["base_snapshot_id"] = changes.base_snapshot_id
    head["files"] = len(changes.files)
    head["removed_files"] = len(changes.removed_files)
    head["removed_manifests"] = len(changes.removed_manifests)
    head["written"] = changes.written
    head["digest"] = np.void(bytes.fromhex(changes.digest))
    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    coverage_blob.put_files(writer, changes.files)
    writer.put("mani", strings.encode(changes.manifests))
    writer.put("gone", changes.removed_files.astype(_NUMBER))
    writer.put("gonm", changes.removed_manifests.astype(_NUMBER))
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> CoverageChanges:
    """Return the changes.

    Raises:
        FormatError: the blob is malformed.
    """
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    return CoverageChanges(
        base_snapshot_id=int(head["base_snapshot_id"]),
        files=coverage_blob.read_files(reader, int(head["files"])),
        removed_files=_ascending(reader, "gone", int(head["removed_files"])),
        manifests=strings.decode(reader.read("mani"), f"{KIND} blob, section mani"),
        removed_manifests=_ascending(reader, "gonm", int(head["removed_manifests"])),
        written=int(head["written"]),
        digest=head["digest"].tobytes().hex(),
    )


def _ascending(reader: ContainerReader, section: str, count: int) -> NDArray[np.uint32]:
    numbers = reader.array(section, _NUMBER, (count,))
    if np.any(numbers[1:] <= numbers[:-1]):
        raise BlobFormatError(f"{KIND} blob: numbers in section {section} do not ascend")
    return numbers


def _same(
    old: CoveredFiles, here: NDArray[np.int64], new: CoveredFiles, there: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell of pairs of files, by their places, which are the same: (p,) bool."""
    found = np.array(old.paths, object)[here] == np.array(new.paths, object)[there]
    same: NDArray[np.bool_] = np.asarray(found, np.bool_)
    for name in ("sizes", "sequence_numbers", "rows", "group_counts"):
        same &= getattr(old, name)[here] == getattr(new, name)[there]
    pairs = np.flatnonzero(same)
    groups = [files.take(at[pairs]) for files, at in ((old, here), (new, there))]
    differs = groups[0].all_row_groups != groups[1].all_row_groups
    before = np.concatenate([[0], np.cumsum(differs)])
    ends = np.cumsum(groups[0].group_counts)
    same[pairs] &= before[ends] == before[ends - groups[0].group_counts]
    marked = np.isin(here, [*old.deleted, *old.skipped])
    marked |= np.isin(there, [*new.deleted, *new.skipped])
    nothing = BitMap()
    for pair in np.flatnonzero(marked & same).tolist():
        at, now = int(here[pair]), int(there[pair])
        same[pair] = old.deleted.get(at, nothing) == new.deleted.get(now, nothing) and (
            old.skipped.get(at, nothing) == new.skipped.get(now, nothing)
        )
    return same
