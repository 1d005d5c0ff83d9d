from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.modelserving.dto import PIECE_BYTES, CacheDump, RoleInstanceDTO, ServingGroupDTO, encode_pieces

text = st.text(max_size=12)
instances = st.builds(RoleInstanceDTO, text, text, text, text)
roles = st.dictionaries(text, st.dictionaries(text, instances, max_size=4), max_size=3)
groups = st.builds(ServingGroupDTO, text, st.lists(text, max_size=5), text, text, roles)
dumps = st.dictionaries(text, st.dictionaries(text, groups, max_size=3), max_size=3)


@pytest.mark.covers("MS-47")
@given(dumps)
def test_pieces_must_be_the_document(dump: CacheDump) -> None:
    dump = {
        key: {name: msgspec.structs.replace(group, name=name) for name, group in groups.items()}
        for key, groups in dump.items()
    }
    raw = b"".join(encode_pieces((key, groups.values()) for key, groups in dump.items()))
    assert raw == msgspec.json.encode(dump) + b"\n"
    assert msgspec.json.decode(raw, type=CacheDump) == dump


@pytest.mark.covers("MS-47")
@given(st.integers(0, 450), st.integers(0, 450), st.integers(1, 4))
def test_pieces_must_be_small_however_large_a_group(pods: int, count: int, width: int) -> None:
    name = "n" * 60 * width
    by_id = {
        f"{name}-{index}": RoleInstanceDTO(f"{name}-{index}", name, name, "Running") for index in range(count)
    }
    group = ServingGroupDTO(
        "g", [f"{name}-{index}" for index in range(pods)], "r", "Running", {"role": by_id}
    )
    pieces = list(encode_pieces([("a/b", [group])]))
    assert b"".join(pieces) == msgspec.json.encode({"a/b": {"g": group}}) + b"\n"
    assert all(len(piece) < PIECE_BYTES + 4 * 256 * 110 for piece in pieces)
