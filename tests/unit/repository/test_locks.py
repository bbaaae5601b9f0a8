"""What is installed is what was resolved: every package of the locks has a version and hashes."""

import re

import pytest

from tests.support.paths import ROOT

PACKAGE = re.compile(r"^[A-Za-z0-9][\w.\[\],-]*==\S+( ;.*?)?( \\)?$")


LOCKS = (
    "requirements.lock",
    "benchmarks/requirements-peers.lock",
    "deploy/build.lock",
    "deploy/image.lock",
    "deploy/executors.lock",
    "docs/requirements.lock",
)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_has_one_version_and_hashes(lock):
    text = (ROOT / lock).read_text()
    packages = re.split(r"\n(?=\S)", text.strip())
    assert len(packages) > 4
    for package in packages:
        first, *rest = package.splitlines()
        assert PACKAGE.match(first), first
        assert any(line.strip().startswith("--hash=sha256:") for line in rest), first


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host(lock):
    assert "://" not in (ROOT / lock).read_text()


def test_locks_are_installed_by_their_hashes():
    for name in ("Makefile", "Dockerfile"):
        installs = [
            line
            for line in (ROOT / name).read_text().splitlines()
            if re.search(r"pip (sync|install .*\.lock|wheel)", line)
        ]
        assert installs
        assert all("--require-hashes" in line for line in installs), installs
