"""Decide which published files stay: pure, from what they hold and when they were published."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration, RetentionOptions
from puffin_ann.foreign_json import object_of, parse
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lifecycle.versions.inventory import Holding, IndexFile


@dataclass(frozen=True)
class Verdict:
    """What becomes of one published file.

    Attributes:
        file: the file.
        reasons: why it stays; empty if it is not needed any more.
        superseded: why it is not needed; empty if it stays.
        since_ms: since when it is not needed, milliseconds since 1970.
        grace_ms: how long it stays after that.
        is_for_others: it stays only since versions in other files need it.
    """

    file: IndexFile
    reasons: tuple[str, ...]
    superseded: tuple[str, ...] = ()
    since_ms: int = 0
    grace_ms: int = 0
    is_for_others: bool = False

    @property
    def is_kept(self) -> bool:
        """Tell whether the file is still needed."""
        return bool(self.reasons)


def policies(
    declarations: Iterable[IndexDeclaration], files: Iterable[IndexFile]
) -> dict[str, RetentionOptions]:
    """Return each index's retention: as declared now, else as it was when it was built."""
    declared = {declaration.name: declaration.retention for declaration in declarations}
    found: dict[str, RetentionOptions] = {}
    for file in files:
        for held in file.holds:
            if held.index not in found:
                found[held.index] = declared.get(held.index) or _recorded(held)
    return found


def _recorded(held: Holding) -> RetentionOptions:
    try:
        recorded = object_of(parse(held.declaration))
        return RetentionOptions.model_validate(recorded.get("retention", {}))
    except ValueError:  # what does not fit is one, too
        return RetentionOptions()


def names_of_snapshots(table: Table) -> dict[int, tuple[str, ...]]:
    """Return the names of users' tags and of branches by the snapshot they point to."""
    found: dict[int, tuple[str, ...]] = {}
    ours = own_tags(table)
    for name, ref in sorted(table.metadata.refs.items()):
        if ours.get(ref.snapshot_id) == name:
            continue
        spoken = f"{ref.snapshot_ref_type.value} {name!r}"
        found[ref.snapshot_id] = (*found.get(ref.snapshot_id, ()), spoken)
    return found


def apply_retention(
    files: Sequence[IndexFile],
    retention: Mapping[str, RetentionOptions],
    names: Mapping[int, Sequence[str]],
) -> list[Verdict]:
    """Say of each published file whether it stays.

    A file stays if it is the newest to hold one of the versions that an index keeps, or if a tag or
    a branch points to a snapshot that it is registered under, that names it, or that it covers; and
    as long as one that stays names it.

    Args:
        files: usable ones, and what they name, the newest first; see `Inventory.with_needed`.
        retention: by index.
        names: names of tags and branches by snapshot.
    """
    histories = {index: _History.of(index, files) for index in retention}
    return _with_needed([_apply(file, histories, retention, names) for file in files])


def _with_needed(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Have files stay at least as long as those that name them."""
    namers: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        for path in verdict.file.needs:
            namers.setdefault(path, []).append(verdict)

    def considered(verdict: Verdict) -> Verdict:
        needing = namers.get(canonical(verdict.file.path), [])
        if verdict.is_kept or not needing:
            return verdict
        kept = tuple(who_needs(verdict.file, (other.file for other in needing if other.is_kept)))
        if kept:
            return Verdict(verdict.file, kept, is_for_others=True)
        gone_ms = max(other.since_ms + other.grace_ms for other in needing)
        since = max(verdict.since_ms, gone_ms - verdict.grace_ms)
        why = verdict.superseded or ("no version that is kept needs it",)
        return replace(verdict, superseded=why, since_ms=since)

    return list(map(considered, verdicts))


def who_needs(file: IndexFile, files: Iterable[IndexFile]) -> list[str]:
    """Say which versions in other files need a file, a sentence for each of those files."""
    key = canonical(file.path)
    needing = (other for other in files if key in other.needs)
    return [f"{other.path} needs it, with {_versions_in(other)}" for other in needing]


def _versions_in(file: IndexFile) -> str:
    return ", ".join(f"version {held.version!r} of index {held.index!r}" for held in file.holds)


@dataclass(frozen=True)
class _History:
    """The versions of one index, newest first, each with the files that hold it, newest first.

    `by_base` has the newest file for each snapshot that a version covers.
    """

    versions: tuple[str, ...]
    files: Mapping[str, tuple[IndexFile, ...]]
    by_base: Mapping[int, IndexFile]

    @classmethod
    def of(cls, index: str, files: Sequence[IndexFile]) -> "_History":
        found: dict[str, tuple[IndexFile, ...]] = {}
        by_base: dict[int, IndexFile] = {}
        for file in files:
            for held in file.holds:
                if held.index == index:
                    found[held.version] = (*found.get(held.version, ()), file)
                    by_base.setdefault(held.base_snapshot_id, file)
        return cls(tuple(found), found, by_base)

    def first_published_ms(self, version: str) -> int:
        return min(file.published_ms for file in self.files[version])


def _apply(
    file: IndexFile,
    histories: Mapping[str, _History],
    retention: Mapping[str, RetentionOptions],
    names: Mapping[int, Sequence[str]],
) -> Verdict:
    covered = {
        held.base_snapshot_id
        for held in file.holds
        if histories[held.index].by_base[held.base_snapshot_id] is file
    }
    reasons = [
        f"{name} stands at snapshot {slot}"
        for slot in sorted({*file.entries, *file.named_by, *covered})
        for name in names.get(slot, ())
    ]
    superseded: list[str] = []
    since = 0
    for held in file.holds:
        keeps = retention[held.index].versions
        history = histories[held.index]
        rank, holders = history.versions.index(held.version), history.files[held.version]
        if rank < keeps and holders[0] is file:
            reasons.append(f"version {rank + 1} of the {keeps} kept of index {held.index!r}")
            continue
        times = []
        if holders[0] is not file:
            newer = holders[holders.index(file) - 1]
            times.append(newer.published_ms)
            superseded.append(f"{newer.path} holds this version of index {held.index!r}, too")
        if rank >= keeps:
            times.append(history.first_published_ms(history.versions[rank - keeps]))
            newer_ones = f"{rank} newer version{'s' if rank != 1 else ''}"
            are_kept = f"{keeps} {'are' if keeps != 1 else 'is'} kept"
            superseded.append(f"index {held.index!r} has {newer_ones}, {are_kept}")
        since = max(since, min(times))
    if reasons:
        return Verdict(file, tuple(reasons))
    grace = max((retention[held.index].grace_ms for held in file.holds), default=0)
    return Verdict(file, (), tuple(superseded), since, grace)
