"""Whether an object still has what was rendered for it, and the merge patch that gives it back.

Planners of features whose objects other people may change call these. What the API server or others add is
theirs; what is rendered is ours. Pure.
"""

from __future__ import annotations

from typing import Any, Final

_UNCOMPARED: Final = frozenset({"resources", "sizeLimit", "divisor", "overhead"})
"""Quantities, which the API server writes in its own way; a change of them is told by a hash."""


def covers(live: Any, rendered: Any) -> bool:
    """Whether `live` says all that `rendered` says: fields may be added, lists must be as long, and what is
    empty may be absent. Fields that hold quantities are not compared."""
    if not rendered and not live:
        return True
    if isinstance(rendered, dict):
        return isinstance(live, dict) and all(
            covers(live.get(key), value) for key, value in rendered.items() if key not in _UNCOMPARED
        )
    if isinstance(rendered, list):
        return (
            isinstance(live, list)
            and len(live) == len(rendered)
            and all(covers(*pair) for pair in zip(live, rendered, strict=True))
        )
    return bool(live == rendered)


def replacing(live: Any, rendered: Any) -> Any:
    """The merge patch that makes `live` the same as `rendered`: what is not rendered is taken out, and the
    API server puts its own defaults back."""
    if not isinstance(live, dict) or not isinstance(rendered, dict):
        return rendered
    gone = {key: None for key in live if key not in rendered}
    return gone | {key: replacing(live.get(key), value) for key, value in rendered.items()}
