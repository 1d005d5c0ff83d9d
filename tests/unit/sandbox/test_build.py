"""The programs are found where they are, and built once where they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from isthmus.errors import UserError
from isthmus.sandbox import build, compiler, places

GO = """#!/bin/sh
case "$1" in
env) echo {version} ;;
list) printf 'one\\ntwo\\n' ;;
build)
    echo build >> {calls}
    while [ "$1" != -o ]; do shift; done
    echo one >&2
    sleep {seconds}
    {result}
    ;;
esac
"""
BINARY = 'printf \'#!/bin/sh\\necho fake\\n\' > "$2"; chmod +x "$2"'


class Heard:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def show(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of its own, and an empty cache."""
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "main.go").write_text("package main\n")
    (folder / "go.mod").write_text("module x\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n")
    monkeypatch.setattr(places, "module", lambda: folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ISTHMUS_CONTROLPLANE", raising=False)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return folder


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def fake_go(
    tmp_path: Path, *, version: str = "go1.26.8", result: str = BINARY, seconds: str = "0"
) -> dict[str, str]:
    """An environment whose PATH has a Go that says what it is told."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(GO.format(version=version, calls=tmp_path / "calls", result=result, seconds=seconds))
    go.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path)}


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_variable_must_win(module: Path, tmp_path: Path) -> None:
    binary = executable(tmp_path / "given")
    assert build.find({"ISTHMUS_CONTROLPLANE": str(binary)}).etcd == (str(binary), "etcd")


def test_variable_that_names_nothing_must_be_told(module: Path) -> None:
    with pytest.raises(UserError, match="ISTHMUS_CONTROLPLANE=/nowhere: not an executable"):
        build.find({"ISTHMUS_CONTROLPLANE": "/nowhere"})


def test_assets_must_be_used_only_when_complete(module: Path, tmp_path: Path) -> None:
    env = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    for name in build.ASSETS[:-1]:
        executable(tmp_path / "assets" / name)
    with pytest.raises(UserError, match="not built yet"):
        build.find(env)
    executable(tmp_path / "assets" / build.ASSETS[-1])
    assert build.find(env).kubectl == (str(tmp_path / "assets" / "kubectl"),)


def test_missing_binary_must_be_told_with_the_command_that_builds_it(module: Path) -> None:
    with pytest.raises(UserError) as caught:
        build.find({})
    assert "make controlplane" in caught.value.hint


@pytest.mark.parametrize("name", ["main.go", "go.mod", "go.sum"])
def test_key_must_change_with_each_source(module: Path, name: str) -> None:
    before = build.key(build.job())
    with (module / name).open("a") as file:
        file.write("// more\n")
    assert build.key(build.job()) != before


def test_key_never_depends_on_other_files(module: Path) -> None:
    before = build.key(build.job())
    (module / "controlplane").write_bytes(b"built")
    assert build.key(build.job()) == before


def test_build_must_be_made_once(module: Path, tmp_path: Path, calls: Path) -> None:
    env = fake_go(tmp_path)
    heard = Heard()
    programs = build.ensure(heard, env)
    assert build.ensure(heard, env) == programs == build.find(env)
    assert calls.read_text().split() == ["build"]
    assert subprocess.run(programs.etcd, capture_output=True, text=True, check=True).stdout == "fake\n"


def test_two_builds_at_once_must_make_one(module: Path, tmp_path: Path, calls: Path) -> None:
    env = fake_go(tmp_path, seconds="0.5")
    heard = [Heard(), Heard()]
    threads = [threading.Thread(target=build.ensure, args=(each, env)) for each in heard]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls.read_text().split() == ["build"]
    assert sum("another build is running; waiting for it" in each.said for each in heard) == 1


def test_build_must_show_how_far_it_is(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "PERIOD_S", 0.1)
    heard = Heard()
    build.ensure(heard, fake_go(tmp_path, seconds="0.5"))
    assert "0m00s: 1 packages compiled, of at most 2" in heard.said


def test_failed_build_must_tell_the_compilers_words_and_leave_no_binary(module: Path, tmp_path: Path) -> None:
    env = fake_go(tmp_path, result="echo main.go:3: broken >&2; exit 1")
    with pytest.raises(UserError, match=r"exit code 1:\n(.|\n)*main\.go:3: broken"):
        build.ensure(Heard(), env)
    with pytest.raises(UserError, match="not built yet"):
        build.find(env)


def test_binary_that_does_not_run_never_is_kept(module: Path, tmp_path: Path) -> None:
    env = fake_go(tmp_path, result='echo nonsense > "$2"; chmod +x "$2"; printf \'\\0\' > "$2"')
    with pytest.raises(UserError, match="does not run"):
        build.ensure(Heard(), env)
    assert not build.cached().exists()


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Stands in for the fetching of Go, and says which versions on PATH were passed by."""
    happened: list[str] = []

    def fetch(module: Path, room: Path, progress: compiler.Progress) -> Path:
        happened.append("fetched")
        env = fake_go(tmp_path)
        place = room / "go"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(env["PATH"].partition(":")[0] + "/go", place)
        return place

    monkeypatch.setattr(compiler, "_fetch_go", fetch)
    return happened


@pytest.mark.parametrize("version", ["go1.25.9", "go1.9.1", "nonsense"])
def test_go_that_is_too_old_must_be_passed_by(
    module: Path, tmp_path: Path, fetched: list[str], version: str
) -> None:
    build.ensure(Heard(), fake_go(tmp_path, version=version))
    assert fetched == ["fetched"]


def test_go_must_be_fetched_where_path_has_none(module: Path, fetched: list[str]) -> None:
    build.ensure(Heard(), {"PATH": "/usr/bin:/bin", "HOME": "/"})
    assert fetched == ["fetched"]


def test_fetched_go_and_what_it_downloaded_must_not_stay(module: Path, fetched: list[str]) -> None:
    build.ensure(Heard(), {"PATH": "/usr/bin:/bin"})
    assert sorted(os.listdir(build.cached().parent)) == ["controlplane", "lock"]


def test_full_disk_must_be_told_before_the_build(
    module: Path, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(UserError, match="GiB of free space"):
        build.ensure(Heard(), fake_go(tmp_path))
    assert not calls.exists()


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.3", (1, 26, 3)), ("1.26", (1, 26, 0)), ("go1.27rc1", (1, 27, 0)), ("x", ())],
)
def test_version_must_be_read_as_numbers(text: str, version: tuple[int, ...]) -> None:
    assert compiler.parse_version(text) == version


def test_pinned_go_must_be_as_new_as_the_module_asks_and_carry_hashes() -> None:
    module = places.module()
    pinned = (module / "go-toolchain.txt").read_text()
    assert compiler.parse_version(pinned) >= compiler.parse_version((module / "go.mod").read_text())
    assert "--hash=sha256:" in pinned
    assert "://" not in pinned
