"""The two families of error: the user's, which waits for a change, and the world's, which is retried.

Every room raises these or its own subclasses of them (kube/errors.py has the API's). A controller turns a
UserError into status and an event and stops; it turns anything else into backoff. The command line turns a
UserError into one line on stderr and exit code 2. This module must import nothing of ours.
"""


class IsthmusError(Exception):
    """Base of every error that Isthmus raises on purpose. The text is for people and names the thing at
    fault."""


class UserError(IsthmusError):
    """Something that a person must change: a flag, a manifest, a missing permission. Retrying cannot help.

    `hint` says what to do about it, or is empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class WorldError(IsthmusError):
    """Something that may pass by itself: a connection, an overload, a conflict. Retry with backoff."""
