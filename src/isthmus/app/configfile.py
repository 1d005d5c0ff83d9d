"""Reads the file that `--config` names into an OperatorConfiguration.

cli/operator.py calls `read`. JSON and YAML are read, whatever the file is called; the YAML library costs
memory and is imported only where the text is not JSON. A key that is there twice is refused, since one of the
two would silently not count. Every failure is a UserError that names the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from isthmus.api import configcheck
from isthmus.api.configcheck import InvalidConfiguration
from isthmus.api.configuration import OperatorConfiguration
from isthmus.errors import UserError

MAX_BYTES: Final = 1 << 20
"""As much as a ConfigMap can hold."""


def read(path: Path) -> OperatorConfiguration:
    """The configuration in a file. Raises UserError for a file that cannot be read or used, with every
    problem that it has."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"--config {path}: {reason}") from error
    if len(content) > MAX_BYTES:
        raise UserError(f"--config {path}: must have at most {MAX_BYTES} bytes")
    try:
        return configcheck.decode(parse(text))
    except InvalidConfiguration as error:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        raise UserError(
            f"--config {path}: {len(error.problems)} problem(s){lines}",
            hint="docs/operator.md has the keys that there are",
        ) from error
    except ValueError as error:
        raise UserError(f"--config {path}: {error}") from error


def parse(text: str) -> object:
    """The document of a JSON or YAML text. Raises ValueError for one that is neither, for a key that is there
    twice, and for more than one document."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_once)
        except json.JSONDecodeError:
            pass  # YAML may begin with a brace too
    return _parse_yaml(text)


def _parse_yaml(text: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is there twice, and aliases, with which a text can grow without end."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not allowed")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.value in seen:
                    problem = f"key {key.value} is there twice, or is no text"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key} is there twice")
        found[key] = value
    return found
