"""Pieces of CEL that the API server can prove to be cheap, for the rules of the modules beside this one.

A CRD is refused unless the cost of each rule has a low upper bound. That bound is astronomic for text made
from a number, for text joined with `+`, and for what `filter`, `map` or `join` return. So numbers are
measured by comparing them, lists of a known length are written out per index, and text is put together by
`format` alone, whose cost is that of its template.
"""

from __future__ import annotations

from collections.abc import Callable


def said(template: str, *arguments: str) -> str:
    """CEL: the template with `%d` and `%s` filled in; `%%` is a percent sign. No single quotes in it."""
    return f"'{template}'.format([{', '.join(arguments)}])"


def digits(number: str) -> str:
    """CEL: how many characters the decimal form of this int32 >= 0 has."""
    steps = "".join(f"{number} < {10**length} ? {length} : " for length in range(1, 10))
    return f"({steps}10)"


def said_of_each(
    template: str,
    items: str,
    most: int,
    holds: Callable[[str], str],
    *shown: Callable[[str], str],
) -> tuple[str, ...]:
    """CEL: for each of at most `most` items of a list the filled template if `holds`, else nothing.

    The result has one expression per item, for as many `%s` of an outer `said`. The callables are given the
    CEL of the item and return what to test and what to show.
    """
    parts = []
    for index in range(most):
        item = f"{items}[{index}]"
        text = said(template, *(show(item) for show in shown))
        parts.append(f"(size({items}) > {index} && {holds(item)} ? {text} : '')")
    return tuple(parts)
