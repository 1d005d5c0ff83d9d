"""Where binaries and sandboxes lie, whatever the environment says."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from isthmus.errors import UserError
from isthmus.sandbox import places

CLONE = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)


def test_xdg_variables_must_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert places.cache_home() == tmp_path / "c" / "isthmus"
    assert places.state_home() == tmp_path / "s" / "isthmus" / "sandbox"


def test_empty_home_folder_must_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places.cache_home() == tmp_path / ".cache" / "isthmus"
    assert places.state_home() == tmp_path / ".local" / "state" / "isthmus" / "sandbox"


@pytest.mark.parametrize("home", [None, "", "/dev/null/nowhere", "relative"])
def test_useless_home_must_be_replaced_by_the_passwd_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None
) -> None:
    if home is not None:
        monkeypatch.setenv("HOME", home)
    entry = pwd.struct_passwd(("u", "x", os.getuid(), 0, "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    assert places.cache_home() == tmp_path / ".cache" / "isthmus"


def test_user_without_any_home_must_get_a_folder_in_the_temporary_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert places.cache_home() == tmp_path / f"isthmus-{os.getuid()}" / "cache"
    assert places.state_home() == tmp_path / f"isthmus-{os.getuid()}" / "state" / "sandbox"


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_cache_never_lies_inside_the_clone(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, str(CLONE / "tests"))
    assert not places.cache_home().is_relative_to(CLONE)


def test_relative_xdg_variable_must_be_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places.cache_home() == tmp_path / ".cache" / "isthmus"


def test_module_must_be_found_from_the_clone() -> None:
    assert places.module() == CLONE / "controlplane"


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "a-", "a" * 33])
def test_name_that_cannot_be_a_folder_must_be_refused(name: str) -> None:
    with pytest.raises(UserError, match="--name"):
        places.check_name(name)
