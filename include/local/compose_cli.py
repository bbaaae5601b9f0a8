"""The containers of docker-compose.yaml, by Docker's own command line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yaml"


@dataclass(frozen=True)
class Compose:
    """A project of its own: what somebody started by hand is another, and stays as it is.

    Attributes:
        project: its name, which its containers, volumes and networks bear.
        variables: that docker-compose.yaml asks for, such as ports.
    """

    project: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str) -> str:
        """Run `docker compose`, and return what it prints.

        Raises:
            subprocess.CalledProcessError: it failed; has what it said.
        """
        return self._run(arguments, capture=True)

    def show(self, *arguments: str) -> None:
        """Run `docker compose`, and let people see what it prints.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        self._run(arguments, capture=False)

    def left(self) -> list[str]:
        """Return what there is of the project: containers, volumes and networks."""
        label = f"label=com.docker.compose.project={self.project}"
        listings = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        return [
            f"{listing[0]} {name}"
            for listing in listings
            for name in _docker([*listing, "--quiet", "--filter", label]).split()
        ]

    def _run(self, arguments: tuple[str, ...], *, capture: bool) -> str:
        base = ["compose", "--project-name", self.project, "--file", str(FILE)]
        return _docker([*base, *arguments], variables=self.variables, capture=capture)


def _docker(
    arguments: list[str], *, variables: Mapping[str, str] | None = None, capture: bool = True
) -> str:
    done = subprocess.run(
        ["docker", *arguments],
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if capture else None,
        text=True,
        check=True,
    )
    return done.stdout or ""


def require_compose() -> None:
    """Exit with what to install unless there is Docker with Compose, and its engine answers."""
    if shutil.which("docker") is None:
        sys.exit("docker is not on PATH: install Docker with its Compose plugin")
    for command, remedy in (
        (["compose", "version"], "install Docker's Compose plugin, 2.20 or newer"),
        (["info"], "start Docker's engine, or point DOCKER_HOST at one that runs on this machine"),
    ):
        done = subprocess.run(["docker", *command], capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            sys.exit(f"'docker {' '.join(command)}' fails ({said[-1] if said else '?'}): {remedy}")
