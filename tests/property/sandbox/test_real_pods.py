"""What real pods and their proxy read never fails otherwise than it says, whatever is sent."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from isthmus.sandbox import completions, entrypoint
from isthmus.sandbox.manifest import expand
from isthmus.sandbox.proxy import BadRequest, read_order

NAMES = st.text(st.characters(codec="ascii", categories=["Lu", "Ll"]), min_size=1)
TOKENS = st.text("GETCONNECT /:.@[]?#%htpfd0189\r\n\t\x00é ", max_size=60)


@given(st.dictionaries(st.integers(1, 65535), st.integers(1, 65535)))
def test_ports_must_read_as_they_were_written(ports: dict[int, int]) -> None:
    assert entrypoint.parse_ports(entrypoint.format_ports(ports)) == ports


@given(st.text(), st.dictionaries(NAMES, st.text()))
def test_text_without_references_must_stay(text: str, env: dict[str, str]) -> None:
    plain = text.replace("$", "")
    assert expand(plain, env) == plain
    assert expand(plain.join(f"$$({name})" for name in env), env) == plain.join(f"$({name})" for name in env)


@given(st.lists(st.tuples(NAMES, st.text())))
def test_references_must_become_their_values_once(pairs: list[tuple[str, str]]) -> None:
    env = dict(pairs)
    assert expand("".join(f"$({name})" for name in env), env) == "".join(env.values())


@given(st.binary() | TOKENS.map(str.encode))
def test_head_of_a_request_must_be_an_order_or_a_bad_request(head: bytes) -> None:
    with contextlib.suppress(BadRequest):
        order = read_order(head)
        assert order.host
        assert 0 < order.port <= 65535
        assert order.head is None or order.head.count(b"\r\n\r\n") == 1


@given(st.binary() | st.text('{}[]":,modelmessagesprompt0-9 ').map(str.encode))
def test_body_must_be_a_request_or_refused(body: bytes) -> None:
    for path in (completions.CHAT, completions.COMPLETIONS, completions.EMBEDDINGS):
        with contextlib.suppress(completions.BadRequest):
            wanted = completions.read(path, body, models=frozenset({"m"}), default_tokens=1)
            assert wanted.model == "m"


@given(st.integers(0, 200))
def test_words_must_be_as_many_as_tokens(count: int) -> None:
    assert len(completions.said(count).split()) == count
