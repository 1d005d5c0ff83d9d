"""Whose an object is, and the reference that makes it a relay's.

exports.py and children.py decide and render with it. Ownership is the UID of the one controller, nothing else
(PR-59): an earlier relay of the same name is a stranger (T-95), and so is a relay that is named without
controlling (T-96).
"""

from __future__ import annotations

from isthmus.api.meta import Object, OwnerReference, Raw
from isthmus.api.poolrelay import POOL_RELAYS, DynamoPoolRelay


def is_ours(obj: Object, uid: str) -> bool:
    """Whether the relay with this UID controls `obj`."""
    owner = obj.metadata.controller()
    return owner is not None and owner.uid == uid


def owner_of(relay: DynamoPoolRelay) -> OwnerReference:
    """The reference that everything of this relay has (PR-42, PR-20)."""
    return OwnerReference(
        api_version=POOL_RELAYS.api_version,
        kind=POOL_RELAYS.kind,
        name=relay.metadata.name,
        uid=relay.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def raw_owner(relay: DynamoPoolRelay) -> Raw:
    """The same as JSON."""
    owner = owner_of(relay)
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": owner.controller,
        "blockOwnerDeletion": owner.block_owner_deletion,
    }


def owner_text(obj: Object) -> str:
    """Whose it is, for people."""
    owner = obj.metadata.controller()
    return "controlled by nobody" if owner is None else f"controlled by {owner.kind} {owner.name}"
