"""Ask S3 for many ranges of an object by one signature: all are sent before one is answered.

botocore makes and signs each request anew, which takes a millisecond or two of Python: of sixty
requests that belong together, the first would be answered long before the last was sent. Here the
object's address is signed once, and what is asked for of it stands in a header that no signature
covers.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from puffin_ann.lake.store.s3 import S3, Location
from puffin_ann.redaction import REDACTION

SECONDS = 60
"""So long a signature holds; what is asked for by it is asked for at once."""

WHOLE = 200
"""Answer of a store that sends all of an object whatever range is asked for."""
REFUSED = frozenset((WHOLE, 400, 401, 403, 405, 501))
"""Answers of stores that take no such addresses, as a bucket's policy may have it, or whose
credentials are no longer valid; but also of a key that must not be read, or is not there."""
REFUSED_SECONDS = 60
_refused_until: dict[tuple[str, str], float] = {}
"""By endpoint and bucket, how long none is tried again."""

Reader = Callable[[int, int, Callable[[], bytes]], bytes]
"""Returns bytes `[start, stop)` of an object, given what reads them as ever."""

QUOTING = (
    "urllib3.connection",
    "urllib3.connectionpool",
    "urllib3.util.retry",
    "botocore.auth",
    "botocore.httpsession",
)
"""Loggers that quote addresses, or what signs these: who has such an address reads the object."""
for _logger in map(logging.getLogger, QUOTING):
    _logger.addFilter(REDACTION)


def reader(store: S3, uri: str) -> Reader | None:
    """Return what reads ranges of an object, by any number of threads; None if nothing can.

    A range that does not come, whatever the reason, is read as ever: that tells the reason, and
    asks again. What was refused so and then came is refused for the way it was asked for, not for
    the object: the bucket's others are not asked for so for a while.

    Args:
        store: of the object.
        uri: location of the object.
    """
    from botocore.awsrequest import AWSPreparedRequest

    place, client = Location.require(uri), store.botocore_client
    bucket = client.meta.endpoint_url, place.bucket
    if time.monotonic() < _refused_until.get(bucket, 0.0):
        return None
    # Its connections, certificates and proxies: botocore has no public name for what sends.
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    if session is None:
        return None
    try:
        address = client.generate_presigned_url(
            "get_object", Params={"Bucket": place.bucket, "Key": place.key}, ExpiresIn=SECONDS
        )
    except Exception:  # such as credentials that are not there, which asking as ever tells
        return None

    def send(start: int, stop: int) -> tuple[int, bytes]:
        asked = {"Range": f"bytes={start}-{stop - 1}"}
        # As a stream: of an object that comes as a whole nothing is read.
        answer: Any = session.send(AWSPreparedRequest("GET", address, asked, None, True))
        if answer.status_code == WHOLE:
            answer.raw.close()
            return WHOLE, b""
        return answer.status_code, answer.content

    def read(start: int, stop: int, as_ever: Callable[[], bytes]) -> bytes:
        if start >= stop:  # no header says that: all would come
            return as_ever()
        status, found = 0, b""
        # Its message may quote the address: it must not be the context of another error.
        with suppress(Exception):
            status, found = send(start, stop)
        if status == 206 and len(found) == stop - start:
            return found
        found = as_ever()
        if status in REFUSED:
            _refused_until[bucket] = time.monotonic() + REFUSED_SECONDS
        return found

    return read
