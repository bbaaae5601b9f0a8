"""What `doctor` can find."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal[
    "lost",
    "dangling",
    "dropped",
    "replaced",
    "expiring",
    "untagged",
    "orphan",
    "undeclared",
    "unknown",
    "unbuilt",
    "unfit",
    "secret",
    "stale",
    "column",
    "damaged",
    "displaced",
    "lease",
    "foreign",
]


class Finding(BaseModel):
    """Something that is worth knowing about a table's indexes.

    Attributes:
        kind: `lost`: no readable file of an index is left; `dangling`: a registered file is gone;
            `dropped`, `replaced`: a registration was removed, or thrown out by others' statistics;
            `expiring`: an expiry is about to take a file's last registrations; `untagged`:
            no tag holds the newest version of an index, which could have one, or somebody dropped
            one of ours; `orphan`: no metadata names a file; `undeclared`: an index is published,
            and what is declared here does not name it; `unknown`: it is published, and nothing is
            known here of what is declared; `unbuilt`: it is declared, and not known to have been
            published; `unfit`: it cannot be built, or refreshed, as it is declared; `secret`: it
            records a setting of Spark that looks like a secret; `stale`: searches scan or mask
            much; `column`: its column is not what its name means by now, so searches are refused;
            `damaged`: bytes are not those that were written; `displaced`: a file of
            ours took the place of others' statistics, by landing late;
            `lease`: a run is at work on an index or on the table's index file, or the newest
            claim of its lease was not written by a run; `foreign`: the table may be another's,
            too, by the metadata files in reach of it.
        indexes: the indexes concerned.
        file: the file concerned, if one is.
        what: what is wrong, in one sentence.
        remedy: what repairs it, or who.
        is_problem: whether something should be done; else it is merely told.
        repaired: whether this call of `doctor` repaired it.
    """

    model_config = ConfigDict(frozen=True)

    kind: Kind
    indexes: tuple[str, ...]
    file: str
    what: str
    remedy: str
    is_problem: bool = True
    repaired: bool = False
