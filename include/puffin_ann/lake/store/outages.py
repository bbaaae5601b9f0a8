"""Three things that a store can say of an object, told apart: here it is, it is not there, nothing.

Clients of stores raise `OSError` for the second and for the third, some of them with nothing but
words to tell which. What is taken for missing is built again, dropped or cleaned away, so that only
a definite answer counts: it becomes an `ObjectMissingError`, which is a `FileNotFoundError`, too. A
store that fails, gives no answer or cuts one short is asked again for a while; then, or where it
refuses access, that is a `StoreUnavailableError`. Bytes that came, and are wrong, are damage: a
`FormatError`.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from puffin_ann.errors import (
    ObjectMissingError,
    PuffinAnnError,
    StoreDeniedError,
    StoreUnavailableError,
)
from puffin_ann.lake.store.credentials import refuse_all
from puffin_ann.redaction import shown_cause
from puffin_ann.settings import settings

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""What a file system says of names that nothing has, and of those that nothing can have."""

_DENIED = frozenset({errno.EACCES, errno.EPERM})

_LASTING = frozenset(
    {errno.EEXIST, errno.EINVAL, errno.EROFS, errno.ENOSPC} | {errno.EDQUOT, errno.EFBIG}
)
"""What is still the same a few seconds later."""

_CLIENTS = frozenset(
    {"aiobotocore", "aiohttp", "azure", "boto3", "botocore", "gcsfs", "google", "requests"}
    | {"s3fs", "urllib3"}
)
"""Packages whose errors are of a store, though not each is an `OSError`."""

# Arrow's clients know the answer, and tell it in words only.
_WORDS_OF_STORES = re.compile(r"AWS Error|HTTP status|curlCode|google::cloud|Azure|HDFS")
_WORDS_OF_MISSING = re.compile(
    r"Path does not exist|AWS Error (NO_SUCH_KEY|RESOURCE_NOT_FOUND)\b|HTTP status 404"
)
_WORDS_OF_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|MISSING_AUTHENTICATION|UNRECOGNIZED"
    r"|NOT_AUTHORIZED|SIGNATURE|EXPIRED|AccessDenied|ExpiredToken|InvalidAccessKey|Signature"
    r"|Forbidden|Unauthorized|PermissionDenied|AWS Error \[code 15\]|HTTP status 40[13]"
)
_WORDS_OF_REFUSAL = re.compile(r"HTTP status (3\d\d|4(?!08|25|29)\d\d)|NO_SUCH_BUCKET|NoSuchBucket")
_WORDS_OF_FOLDERS = re.compile(r"is a directory|[Nn]ot a regular file")

_T = TypeVar("_T")


def patiently(uri: str, ask: Callable[[], _T]) -> _T:
    """Return what a store answers; while it fails, it is asked again.

    Args:
        uri: location of the object that is asked for.
        ask: asks the store, once; may be called several times.

    Raises:
        ObjectMissingError: the object is definitely not there.
        IsADirectoryError: there is a folder in its place, or a link that leads to itself.
        StoreDeniedError: the store refuses access.
        StoreUnavailableError: it has not answered within the setting `store_seconds`.
    """
    with telling(uri):
        return ask_again(ask)


def ask_again(
    ask: Callable[[], _T], *, after: Callable[[BaseException], bool] = lambda error: True
) -> _T:
    """Return what a store answers as `patiently` does; it raises the client's own errors.

    Args:
        ask: asks the store, once; may be called several times.
        after: tells errors after which that does no harm.
    """
    once = partial(with_valid_credentials, ask)

    def is_worth_it(error: BaseException) -> bool:
        return is_passing(error) and after(error)

    try:
        return once()
    except Exception as error:
        if not is_worth_it(error):
            raise
        failures = [error]

    def once_more() -> _T:
        if failures:  # the first attempt is made, and was not worth setting up others
            raise failures.pop()
        return once()

    attempts = Retrying(
        retry=retry_if_exception(is_worth_it),
        stop=stop_after_delay(settings().store_seconds),
        wait=wait_random_exponential(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    return attempts(once_more)


def with_valid_credentials(ask: Callable[[], _T]) -> _T:
    """Return what a store answers; if it refuses access, with credentials that are renewed.

    Args:
        ask: asks the store, once; called again only where a catalog lent the credentials.
    """
    try:
        return ask()
    except Exception as error:
        if not (_is_refusal(error) and refuse_all()):
            raise
        return ask()


@contextmanager
def telling(uri: str) -> Iterator[None]:
    """Tell what goes wrong with an object as `patiently` does, of a store that is asked once."""
    try:
        yield
    except Exception as error:
        told = translate(error, uri)
        if told is error:
            raise
        raise told from shown_cause(error)


def translate(error: Exception, uri: str) -> Exception:
    """Return what an error means for an object: see `patiently`; itself if it is not a store's."""
    if isinstance(error, PuffinAnnError) or not is_of_a_store(error):
        return error
    if is_missing(error):
        return ObjectMissingError(f"{uri} is gone from the store")
    if _is_no_file(error):
        number = getattr(error, "errno", None) or errno.EISDIR
        return IsADirectoryError(number, os.strerror(number), uri)
    said = _words(error)
    if _is_denied(error):
        return StoreDeniedError(
            f"the store refuses access to {uri}: {said}; check the credentials or permissions "
            "(some stores refuse what is not there, too, where listing is not allowed)"
        )
    return StoreUnavailableError(
        f"the store gives no answer for {uri}: {said}; check that it can be reached, and try again"
    )


def is_of_a_store(error: BaseException) -> bool:
    """Tell whether an error is one that clients of stores raise."""
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or package in _CLIENTS


def is_of_transport(error: OSError) -> bool:
    """Tell an error of a store from one of a decoder, of which Arrow makes an OSError, too."""
    return (
        error.errno is not None
        or type(error) is not OSError
        or _is_no_file(error)
        or _WORDS_OF_STORES.search(str(error)) is not None
    )


def is_missing(error: BaseException) -> bool:
    """Tell whether a store says for certain that an object is not there."""
    if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) in _MISSING:
        return True
    return _status(error) == 404 or _WORDS_OF_MISSING.search(str(error)) is not None


def _is_denied(error: BaseException) -> bool:
    if isinstance(error, PermissionError) or getattr(error, "errno", None) in _DENIED:
        return True
    return _status(error) in (401, 403) or _WORDS_OF_DENIED.search(str(error)) is not None


def _is_refusal(error: BaseException) -> bool:
    """Tell whether a store may have refused access; a request without an answer's text, too.

    Asked for no more than what there is, S3 answers expired credentials with a bare 400.
    """
    if isinstance(error, PuffinAnnError) or not is_of_a_store(error):
        return False
    return _is_denied(error) or _status(error) == 400 or "HTTP status 400" in str(error)


def _is_no_file(error: BaseException) -> bool:
    """Tell whether there is a folder in an object's place, or a link that leads to itself."""
    if isinstance(error, IsADirectoryError) or getattr(error, "errno", None) == errno.ELOOP:
        return True
    return _WORDS_OF_FOLDERS.search(str(error)) is not None


def is_passing(error: BaseException) -> bool:
    """Tell whether a store may answer otherwise in a moment."""
    if isinstance(error, PuffinAnnError) or not is_of_a_store(error):
        return False
    if is_missing(error) or _is_denied(error) or _is_no_file(error):
        return False
    if getattr(error, "errno", None) in _LASTING:
        return False
    status = _status(error)
    if 300 <= status < 500:
        return status in (408, 425, 429)
    return _WORDS_OF_REFUSAL.search(str(error)) is None


def _status(error: BaseException) -> int:
    """Return the HTTP status that an error of some client tells, 0 if it does not."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    for told in (response, getattr(response, "status_code", None)):
        if isinstance(told, int):
            return told
    for name in ("status_code", "status", "code"):
        told = getattr(error, name, None)
        if isinstance(told, int):
            return told
    return 0


def _words(error: Exception) -> str:
    """Return what an error says, on one line."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())
