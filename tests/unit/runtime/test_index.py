from collections.abc import Iterable

import pytest

from isthmus.api.meta import Object
from isthmus.runtime.index import Index
from tests.support.things import thing


def by_label(obj: Object) -> Iterable[str]:
    return obj.metadata.labels.values()


def names(index: Index[Object], value: str) -> list[str]:
    return sorted(obj.metadata.name for obj in index.of(value).values())


def test_index_must_follow_an_object_from_value_to_value() -> None:
    index = Index(by_label)
    first, second = thing("a", 1, x="red", y="small"), thing("a", 2, x="blue", y="small")
    index.change(first.key, None, first)
    assert (names(index, "red"), names(index, "small")) == (["a"], ["a"])
    index.change(first.key, first, second)
    assert (names(index, "red"), names(index, "blue")) == ([], ["a"])
    assert index.of("small")[first.key] is second
    index.change(first.key, second, None)
    assert len(index) == 0


def test_index_must_hold_the_newest_state_where_the_values_stay() -> None:
    index = Index(by_label)
    first, second = thing("a", 1, x="red"), thing("a", 2, x="red")
    index.change(first.key, None, first)
    index.change(first.key, first, second)
    assert index.of("red")[first.key] is second


def test_index_view_must_be_live_and_read_only() -> None:
    index = Index(by_label)
    one, two = thing("a", 1, x="red"), thing("b", 1, x="red")
    index.change(one.key, None, one)
    view = index.of("red")
    index.change(two.key, None, two)
    assert len(view) == 2
    with pytest.raises(TypeError):
        view[one.key] = two  # type: ignore[index]
    with pytest.raises(TypeError):
        index.of("nothing")[one.key] = two  # type: ignore[index]


def test_index_must_drop_an_object_whose_new_state_cannot_be_indexed() -> None:
    def fn(obj: Object) -> Iterable[str]:
        return (obj.metadata.labels["x"],)

    index = Index(fn)
    first = thing("a", 1, x="red")
    index.change(first.key, None, first)
    with pytest.raises(KeyError):
        index.change(first.key, first, thing("a", 2))
    assert len(index) == 0
    third = thing("a", 3, x="red")
    with pytest.raises(KeyError):
        index.change(first.key, thing("a", 2), third)
