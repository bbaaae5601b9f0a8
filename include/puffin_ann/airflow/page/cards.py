"""Cards, which the page of one index is made of."""

from typing import Literal

from puffin_ann.airflow.page.markup import Content, Markup, element

Width = Literal["quarter", "half", "wide"]
"""Of a card, where there is room for four beside each other."""


def card(title: str, *content: Content, width: Width = "half") -> Markup:
    """Return a card with a title."""
    return element("section", element("h2", title), *content, class_=f"card {width}")
