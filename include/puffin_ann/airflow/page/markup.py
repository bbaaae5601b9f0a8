"""HTML, made of elements: whatever is not an element itself is a text, and is escaped."""

from collections.abc import Sequence
from functools import lru_cache
from html import escape

EMPTY = frozenset({"meta", "link", "input", "br"})
"""Elements that have no content and no end."""


SHORT = 64
"""Characters of a text that is kept escaped: names of classes, labels and states come again."""


class Markup(str):
    """HTML that is complete; made by this module alone."""

    __slots__ = ()


Content = Markup | str | int | None


def element(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        *content: elements, and texts, which are escaped; None is left out.
        **attributes: by name, with `_` for `-`, and one at the end of Python's own words; True is
            one without a value, False and None are left out.
    """
    given = "".join(
        [
            f" {_name(key)}" if value is True else f' {_name(key)}="{_text(value)}"'
            for key, value in attributes.items()
            if value is not None and value is not False
        ]
    )
    if name in EMPTY:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(*content)}</{name}>")


def joined(*content: Content) -> Markup:
    """Return elements and texts, one after another."""
    return Markup(
        "".join(
            [
                part if isinstance(part, Markup) else _text(part)
                for part in content
                if part is not None
            ]
        )
    )


def page(
    title: str, *body: Content, styles: Sequence[str] = (), scripts: Sequence[str] = ()
) -> str:
    """Return a whole page.

    Args:
        title: of the page.
        *body: what is on it.
        styles: style sheets of this page alone, which ours goes after.
        scripts: of this page alone, in their order.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        *(
            element("link", rel="stylesheet", href=f"static/{name}")
            for name in (*styles, "page.css")
        ),
        element("script", src="static/theme.js"),
        *(element("script", src=f"static/{name}", defer=True) for name in ("page.js", *scripts)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body), lang='en')}\n"


def _text(value: str | float) -> str:
    """Return what is not an element as a text; a number has nothing to escape."""
    if not isinstance(value, str):
        return str(value)
    return _escaped(value) if len(value) < SHORT else escape(value)


@lru_cache(maxsize=4096)
def _escaped(value: str) -> str:
    return escape(value)


@lru_cache(maxsize=256)
def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
