"""Every error the library raises on purpose.

A message names the thing, says what is wrong with it, and says what to do. The command line prints
the message alone and leaves with `exit_code`; anything that is not a `PuffinAnnError` is a defect.
"""

from typing import Any, ClassVar

from puffin_ann.redaction import redact


class PuffinAnnError(Exception):
    """Base of all errors of this library; no message of one holds a secret.

    Attributes:
        aside: what helps the user of a command but must not be shown to readers of a log or a page,
            such as the names of other tables. Only the command line shows it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, *about: Any, aside: str = "") -> None:
        super().__init__(*(redact(part) if isinstance(part, str) else part for part in about))
        self.aside = redact(aside)


# Bad input: exit code 2, as a shell user expects of wrong usage.


class BadInputError(PuffinAnnError):
    """What the caller asked for cannot be: the message says what is allowed."""

    exit_code = 2


class DeclarationError(BadInputError):
    """An index declaration is not valid; names file, field, value and what is allowed."""


class QueryError(BadInputError):
    """A search was asked for with a wrong `k`, query width or value."""


class UnsupportedColumnError(BadInputError):
    """The column is not a list of floating-point numbers of one width."""


class UnsupportedTableError(BadInputError):
    """The table holds something we refuse by name: encrypted files, files other than Parquet."""


class TagNotKeptError(UnsupportedTableError):
    """The catalog refuses a tag, or took it and does not keep it; nothing was published."""


class BadVectorsError(BadInputError):
    """Vectors are null, NaN, infinite or of another width, and the declaration refuses those."""


class TooFewRowsError(BadInputError):
    """The table has no rows, or fewer than the partitions asked for."""


# Not there: exit code 3.


class NotFoundError(PuffinAnnError):
    """Something named does not exist."""

    exit_code = 3


class TableNotFoundError(NotFoundError):
    """No such catalog, namespace or table."""


class ColumnNotFoundError(NotFoundError):
    """The table has no such column."""


class IndexedColumnError(ColumnNotFoundError):
    """The column that was indexed is gone, or its name is that of another one by now."""


class SnapshotNotFoundError(NotFoundError):
    """The table has no such snapshot."""


class IndexNotFoundError(NotFoundError):
    """No readable version of the index is registered in the table."""


class RowNotFoundError(NotFoundError):
    """No row has the key asked for, or none with a usable vector."""


# The table moved on: exit code 4.


class ConflictError(PuffinAnnError):
    """The branch head is not the one the run was planned on; nothing was published."""

    exit_code = 4


class SupersededError(ConflictError):
    """The index was published again, or dropped, since the run was planned: plan the run again."""


class StaleIndexError(PuffinAnnError):
    """Rows of the snapshot are not in the index, and the caller lets none of those be scanned."""

    exit_code = 4


class UnclearCommitError(PuffinAnnError):
    """The catalog's answer to a commit was lost; files are kept until the outcome is known."""

    exit_code = 4


# The result is not good enough: exit code 5.


class RecallTooLowError(PuffinAnnError):
    """The gate measured a recall under the declared target; nothing was published."""

    exit_code = 5


# The surroundings: exit code 6.


class EnvironmentProblemError(PuffinAnnError):
    """Something outside this library is missing or does not answer."""

    exit_code = 6


class CatalogUnavailableError(EnvironmentProblemError):
    """The catalog is not configured or does not answer."""


class ObjectMissingError(EnvironmentProblemError, FileNotFoundError):
    """The table's store says that an object is not there."""


class StoreUnavailableError(EnvironmentProblemError):
    """The table's store does not say what an object is: it failed, or gave no answer.

    It does not follow that the object is missing or damaged: on this error nothing is built,
    dropped or cleaned.
    """


class StoreDeniedError(StoreUnavailableError):
    """The table's store refuses access; some refuse it to objects that are not there, too."""


class UnsafeFolderError(EnvironmentProblemError):
    """Another user of this machine could exchange what is kept in a folder; says who, and where."""


class CacheUnusableError(EnvironmentProblemError):
    """No folder on local disk can keep shards or kernels; says why."""


class LocalCopyError(EnvironmentProblemError):
    """What was unpacked to local disk is not whole there; says nothing of what it came from."""


class NotInstalledError(EnvironmentProblemError, ImportError):
    """A package is not installed that only some work needs; names the extra that brings it."""


class CompilationError(EnvironmentProblemError):
    """A process that compiled kernels failed; has its last words."""


class SparkNotFoundError(EnvironmentProblemError):
    """`spark-submit` or Java is not to be found, or PySpark is not whole."""


class StagingError(EnvironmentProblemError):
    """A staged object is missing, or is not what its marker says it is."""


class StagingGoneError(StagingError):
    """What a run staged is gone, or is not what it staged: start the run again."""


class StoreRefusedError(StagingError):
    """The object store answered that it will not; asked again, it answers the same.

    `status` is the HTTP status, 0 if it is not known: 404 missing, 409 others at it, 412 not in the
    state asked for. `code` is the store's own word for it, such as `NoSuchUpload`, empty if it is
    not known.
    """

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


# Bytes that are not what they should be: exit code 7.


class FormatError(PuffinAnnError):
    """Bytes break the format they claim to be in; names the file or section and the offset."""

    exit_code = 7


class PuffinFormatError(FormatError):
    """The Puffin container is broken."""


class BlobFormatError(FormatError):
    """A blob of ours is broken."""


class ChecksumError(FormatError):
    """Bytes were read, but not those that were written."""


class DamagedIndexError(FormatError):
    """An index is published, and no version of it can be read; names the file and the remedy."""


class DataFileError(FormatError):
    """A file of the table itself is damaged, its data, deletes or manifests; names the file."""


class UnsupportedVersionError(FormatError):
    """The blob was written by a later major version of the format than this reader knows."""


class OutputLimitError(FormatError):
    """Decompression would give more bytes than the limit set for it."""


# Somebody else is at it: exit code 9; the command line's 8 means that problems were found.


class LeaseHeldError(PuffinAnnError):
    """Another run works on the same index or publishes into the same table; says who."""

    exit_code = 9
