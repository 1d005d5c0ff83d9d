"""Programs besides the control plane are built like it, and keep what they need of their modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.errors import UserError
from isthmus.sandbox import build, places
from isthmus.sandbox.compiler import Extract
from isthmus.sandbox.programs import ALL, KARMADA, Program
from tests.unit.sandbox.test_build import Heard

GO = """#!/bin/sh
case "$*" in
env*) echo go1.26.8 ;;
"list -mod=readonly -m"*) echo {source} ;;
list*) echo one ;;
build*)
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\necho built\\n' > "$2"; chmod +x "$2"
    ;;
esac
"""
EXTRACTS = (Extract("example.com/x", "bases"), Extract("example.com/x", "deploy/hook.yaml"))


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A clone with one module, a Go that builds it, and the module whose files are wanted, read-only."""
    source = tmp_path / "source"
    for name, text in (("bases/a/one.yaml", "one"), ("deploy/hook.yaml", "hook"), ("other", "other")):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o444)
    module = tmp_path / "clone" / "tool"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO.format(source=source))
    go.chmod(0o755)
    monkeypatch.setattr(places, "clone", lambda: tmp_path / "clone")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return {"PATH": f"{go.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}


def test_program_that_is_not_built_must_be_told_with_the_command_that_builds_it(env: dict[str, str]) -> None:
    with pytest.raises(UserError, match="A tool is not built yet") as caught:
        Program("tool", "A tool", "tool").find()
    assert "isthmus sandbox build tool" in caught.value.hint


def test_built_program_must_be_found_with_what_it_needs_of_its_modules(env: dict[str, str]) -> None:
    tool = Program("tool", "A tool", "tool", EXTRACTS)
    binary = tool.ensure(Heard(), env)
    assert tool.find() == binary == tool.cached()
    assert (tool.extract("bases") / "a" / "one.yaml").read_text() == "one"
    tool.extract("deploy/hook.yaml").write_text("may be written")
    assert not tool.extract("other").exists()


def test_key_must_change_with_what_is_kept(env: dict[str, str]) -> None:
    keys = {build.key(Program("tool", "A tool", "tool", EXTRACTS[:count]).job()) for count in range(3)}
    assert len(keys) == 3


@pytest.mark.parametrize("name", sorted(ALL))
def test_program_must_have_a_module_with_all_checksums(name: str) -> None:
    module = ALL[name].job().module
    assert (module / "main.go").is_file()
    assert (module / "go.sum").stat().st_size > 1000


def test_karmada_must_keep_its_crds_and_its_webhooks() -> None:
    assert {each.path.rpartition("/")[2] for each in KARMADA.extracts} == {
        "bases",
        "webhook-configuration.yaml",
    }
