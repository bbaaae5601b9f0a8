"""Keep secrets out of messages, logs and reports.

Catalogs, stores and drivers quote addresses and settings in what they raise, passwords included.
Every message of an error of ours and every record of our logger goes through `redact`, so that no
place that quotes a foreign error has to think of it.

Secrets are known by their place (before the `@` of an address, after a name such as `password=`),
and by their value where that was met as a catalog's property: a server may quote it anywhere.
"""

import logging
import re
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

HIDDEN = "***"
"""What is shown in place of a secret."""

_NAME = (
    r"secret|passw(?:or)?d|passphrase|token(?!iz)|credential|signature|authorization|assertion"
    r"|(?<![a-z])(?:pwd|pass|sig|sas|x-auth)(?![a-z])"
    r"|(?:access|account|api|private|encryption|session|kms)[._-]?key"
)
_SECRET_NAME = re.compile(rf"{_NAME}|[._-]key$", re.IGNORECASE)

# All repetitions that others follow are bounded: no text takes more than linear time.
_USERINFO = re.compile(
    # A password may hold a slash or an @ of its own: after a colon that begins no port, all up to
    # the last @ of the word is taken. The user part of abfss:// and wasbs:// names a container.
    r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,30}://)"
    r"(?:[^/\s:@?#'\"]{0,300}:(?!\d+(?:[/?#\s]|$))[^\s'\"<>]{0,2000}"
    r"|(?P<user>[^/\s:@?#'\"]{0,300}))@",
    re.IGNORECASE,
)
_CONTAINER_SCHEMES = ("abfs", "wasb")

_NAMED = rf"(?P<name>(?:{_NAME})[\w.-]{{0,100}}"
_SCHEME = r"(?P<scheme>(?:bearer|basic|aws4-hmac-sha256)\s+)?"

_ASSIGNED = re.compile(
    # In an address, in a dict's repr, in JSON: a sign of equality, or a value in quotes.
    rf"{_NAMED}|(?<=[?&])key)"
    r"(?P<between>\\?['\"]?\s?(?:(?:=|%3D)\s?[\[({]{0,3}|:\s?[\[({]{0,3}(?=\\?['\"])))"
    rf"(?P<quote>\\?['\"]?){_SCHEME}"
    r"(?:(?<=')[^']+|(?<=\")[^\"]+|[^\s'\"&]*[^\s'\"&).,;:}\]])",
    re.IGNORECASE,
)
_SETTING = re.compile(
    # The line of a file of settings or a header: a name and its value, and no more.
    rf"^(?P<name>[ \t]*[\w.-]{{0,100}}?(?:{_NAME})[\w.-]{{0,100}}:[ \t]+){_SCHEME}\S+[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_TOLD = re.compile(
    # Within a sentence, where words and counts follow colons: what is neither.
    rf"{_NAMED})(?P<between>:\s?){_SCHEME}"
    r"(?=[^\s'\"]{0,300}[^a-z\s'\".,;:-])(?!(?-i:[\d.,]+(?:\s|$)))[^\s'\"&]*[^\s'\"&).,;:}\]]",
    re.IGNORECASE,
)
_ORACLE = re.compile(r"(?P<user>:thin:[^/\s@]{0,300})/[^\s@]{1,300}@", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END)?")
_BEARER = re.compile(r"\b(?P<scheme>bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)

_SUSPECT = re.compile(rf"{_NAME}|[?&]key|PRIVATE KEY|bearer|basic", re.IGNORECASE)
"""What is in every text that any of these five changes: most texts have none, and are many."""

_SHORTEST = 6
"""Characters of a value that is looked for by itself: a shorter one may be a part of any word."""

_LONGEST_CHAIN = 20
_MOST = 256
_met: dict[str, None] = {}
"""Values met as secret properties, those met last at the end; tokens that are vended change."""


def redact(text: str) -> str:
    """Return a text without the secrets in it; one without any is returned as it is."""
    for value in tuple(_met):
        if value in text:
            text = text.replace(value, HIDDEN)
    if "@" in text:
        text = _USERINFO.sub(_without_userinfo, text)
        text = _ORACLE.sub(rf"\g<user>/{HIDDEN}@", text)
    if not _SUSPECT.search(text):
        return text
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _ASSIGNED.sub(rf"\g<name>\g<between>\g<quote>{HIDDEN}", text)
    text = _SETTING.sub(rf"\g<name>{HIDDEN}", text)
    text = _TOLD.sub(rf"\g<name>\g<between>{HIDDEN}", text)
    return _BEARER.sub(rf"\g<scheme> {HIDDEN}", text)


def _without_userinfo(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    if user is not None and scheme.lower().startswith(_CONTAINER_SCHEMES):
        return found[0]
    return f"{scheme}{HIDDEN}@"


def is_secret_name(name: str) -> bool:
    """Tell whether a setting's name looks as if its value were a secret."""
    return _SECRET_NAME.search(name) is not None


def remember_secrets(properties: Mapping[str, Any]) -> None:
    """Keep the values of secret properties out of all output from now on.

    Args:
        properties: of a catalog or of a table's store; by name.
    """
    for name, value in properties.items():
        if isinstance(value, Mapping):  # as YAML files nest them
            remember_secrets(value)
            continue
        text = str(value)
        secrets = [text, text.partition(":")[2]] if _is_secret(name) else []
        for secret in [*secrets, *_passwords_in(text)]:
            if len(secret) >= _SHORTEST:
                _met.pop(secret, None)
                _met[secret] = None
    while len(_met) > _MOST:
        del _met[next(iter(_met))]


def _is_secret(name: str) -> bool:
    return is_secret_name(name) and not name.endswith(("-id", "enabled", "-uri", "-ms"))


def _passwords_in(text: str) -> list[str]:
    """Return the password of an address, as it is written there and as it is meant."""
    match = re.match(r"[a-z][a-z0-9+.-]{0,30}://[^/\s:@]*:(\S*)@", text, re.IGNORECASE)
    return [match[1], unquote_plus(match[1])] if match else []


def shown_cause(error: BaseException) -> BaseException | None:
    """Return what a traceback may show as an error's cause: None where that tells a secret."""
    link: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if link is None:
            return error
        told = "\n".join((str(link), repr(link), *getattr(link, "__notes__", ())))
        if redact(told) != told:
            return None
        link = link.__cause__ or link.__context__
    return None  # what is further down is not known


class _Redaction(logging.Filter):
    """Takes the secrets out of records; lets all of them pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.getMessage()
        clean = redact(told)
        if clean != told:
            record.msg, record.args = clean, None
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            clean = redact(trace)
            if clean != trace:
                record.exc_info, record.exc_text = None, clean
        return True


REDACTION = _Redaction()
"""Filter of loggers and handlers."""
