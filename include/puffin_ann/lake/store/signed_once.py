"""Ask S3 for many ranges of an object by one signature: all are sent before one is answered.

botocore makes and signs each request anew, which takes a millisecond or two of Python: of sixty
requests that belong together, the first would be answered long before the last was sent. Here the
object's address is signed once, and what is asked for of it stands in a header that no signature
covers.
"""

import time
from collections.abc import Callable
from typing import Any

from puffin_ann.lake.store.s3 import S3, Location

SECONDS = 300
"""So long a signature holds; what is asked for by it is asked for at once."""

REFUSED = frozenset((400, 401, 403, 405, 501))
"""Answers of stores that take no such addresses, as a bucket's policy may have it, or whose
credentials are no longer valid."""
REFUSED_SECONDS = 600
_refused_until: dict[tuple[str, str], float] = {}
"""By endpoint and bucket, how long none is tried again."""


def reader(store: S3, uri: str) -> Callable[[int, int], bytes | None] | None:
    """Return what reads bytes `[start, stop)` of an object, by any number of threads.

    It returns None for a range that did not come, whatever the reason: whoever wants it then asks
    as ever, is told the reason, and has it asked for again. So does who is given None for a reader.

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

    def read(start: int, stop: int) -> bytes | None:
        asked = {"Range": f"bytes={start}-{stop - 1}"}
        try:
            answer: Any = session.send(AWSPreparedRequest("GET", address, asked, None, False))
            found: bytes = answer.content
        except Exception:  # its message may quote the address, and so the signature
            return None
        if answer.status_code in REFUSED:
            _refused_until[bucket] = time.monotonic() + REFUSED_SECONDS
        return found if answer.status_code == 206 and len(found) == stop - start else None

    return read
