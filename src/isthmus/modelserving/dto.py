"""What the debug port shows of ModelServings: types of its own, and their JSON in small pieces.

dump.py fills ServingGroupDTO and RoleInstanceDTO from an immutable snapshot and passes them to
`encode_pieces`, the controller keeps Decisions; debugport/ sends both and the command line decodes them
again. Internal objects never appear here, nor environment values, nor anything of a Secret. The JSON of the
cache is MS-47's to the letter; `encode_pieces` never makes a piece that holds the interpreter for longer than
a few milliseconds, however large a group is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

PIECE_BYTES: Final = 2 * 1024
"""A piece is handed on once it has reached this size: that is a few groups, whose states take about as long
to tell as a worker thread may hold the interpreter. debugport/stream.py joins pieces that were made fast."""
_SLICE: Final = 100
"""Names or role instances encoded in one go: a piece has at most so many more than it needs."""


class RoleInstanceDTO(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One instance of a role: one entry pod and its workers.

    `name` is the role instance ID, for example `prefill-0`: the role's name and an ordinal. `status` is
    Creating, Running or Deleting (MS-38). `revision` is that of its group's roles when it was made, and
    `role_template_hash` covers its own role alone; both are empty where no pod says them.
    """

    name: str
    revision: str
    role_template_hash: str
    status: str


class ServingGroupDTO(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One ServingGroup: `status` is Creating, Running, Scaling or Deleting (MS-38).

    `roles` has two levels, since a role is a kind of thing and its instances are things. The first key is the
    role's **name** in the spec, for example `prefill`. The second is the role **instance ID**, for example
    `prefill-0` and `prefill-1`, of which there are as many as the role has replicas. So
    `roles["prefill"]["prefill-1"].status` is the state of the second replica of the role `prefill` in this
    group. An instance ID is unique in its group only. `running_pods` names the pods that run and are ready.
    """

    name: str
    running_pods: list[str]
    revision: str
    status: str
    roles: Mapping[str, Mapping[str, RoleInstanceDTO]]


CacheDump = dict[str, dict[str, ServingGroupDTO]]
"""The whole answer: `namespace/name` of the ModelServing -> name of the group -> the group (MS-47)."""


class PlannedAction(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One thing that a decision meant to do: `action` to `target`, and `why` in a few words."""

    action: str
    target: str
    why: str


class Decision(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """One decision about a ModelServing.

    `namespace` and `name` are the ModelServing's. `time` is when it was taken, RFC 3339 in UTC with
    microseconds. `observed` says in short what was seen, `planned` what was to be done about it and why,
    `outcome` how it ended (`done`, `waiting: ...`, `failed: ...`), `duration_seconds` how long that took.
    `trigger` is what caused it, where that is known.
    """

    namespace: str
    name: str
    time: str
    observed: str | dict[str, str | int]
    planned: list[PlannedAction]
    outcome: str
    duration_seconds: float
    trigger: str = ""


DecisionDump = dict[str, list[Decision]]
"""The answer of the decisions route: `namespace/name` -> its last decisions, oldest first."""


def encode_pieces(servings: Iterable[tuple[str, Iterable[ServingGroupDTO]]]) -> Iterator[bytes]:
    """The JSON document of MS-47 as consecutive pieces of about PIECE_BYTES.

    `servings` gives (`namespace/name`, its groups) in the order of the answer; both levels are consumed as
    they are needed, so generators keep memory flat. Keys must be distinct on each level. The last piece ends
    in a newline.
    """
    buffer = bytearray()
    for part in _document(servings):
        buffer += part
        if len(buffer) >= PIECE_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def _document(servings: Iterable[tuple[str, Iterable[ServingGroupDTO]]]) -> Iterator[bytes]:
    yield b"{"
    for index, (key, groups) in enumerate(servings):
        yield (b",%b:{" if index else b"%b:{") % _encode(key)
        for position, group in enumerate(groups):
            if position:
                yield b","
            yield from _group(group)
        yield b"}"
    yield b"}\n"


def _group(group: ServingGroupDTO) -> Iterator[bytes]:
    name = _encode(group.name)
    yield b'%b:{"name":%b,"runningPods":[' % (name, name)
    for start in range(0, len(group.running_pods), _SLICE):
        yield (b"," if start else b"") + _encode(group.running_pods[start : start + _SLICE])[1:-1]
    yield b'],"revision":%b,"status":%b,"roles":{' % (_encode(group.revision), _encode(group.status))
    for index, (role, instances) in enumerate(group.roles.items()):
        yield (b",%b:{" if index else b"%b:{") % _encode(role)
        yield from _instances(instances)
        yield b"}"
    yield b"}}"


def _instances(instances: Mapping[str, RoleInstanceDTO]) -> Iterator[bytes]:
    if len(instances) <= _SLICE:
        yield _encode(instances)[1:-1]
        return
    batch: dict[str, RoleInstanceDTO] = {}
    separator = b""
    for key, instance in instances.items():
        batch[key] = instance
        if len(batch) == _SLICE:
            yield separator + _encode(batch)[1:-1]
            separator = b","
            batch = {}
    if batch:
        yield separator + _encode(batch)[1:-1]


_encode: Final = msgspec.json.Encoder().encode
