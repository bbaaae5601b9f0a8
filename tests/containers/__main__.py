"""Make the images that stand in for those of docker-compose.yaml; see the package's page."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

from tests.support.paths import ROOT
from tests.support.servers import rest_catalog

HERE = ROOT / "tests" / "containers"
BASE = "debian:bookworm-slim"
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
"""Where this machine's certificates are, and where Debian looks for them."""


def wanted() -> dict[str, str]:
    """Return the names of the images, and the folder that each is made from."""
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    built_on = re.search(r"^ARG AIRFLOW=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = {service["image"] for service in services.values() if service["image"][-6:] != ":local"}
    assert built_on
    return {name: name.split(":")[0].split("/")[-1] for name in sorted({*names, built_on[1]})}


def main() -> None:
    """Make what is not there yet."""
    if not is_there(BASE):
        make_base()
    for name, folder in wanted().items():
        if not is_there(name):
            print(f"== {name}", flush=True)
            make(name, HERE / folder)


def is_there(name: str) -> bool:
    done = subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False)
    return done.returncode == 0


def make_base() -> None:
    """Make Debian's base image of Debian's packages, with the certificates of this machine."""
    print(f"== {BASE}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        suite = BASE.split(":")[1].removesuffix("-slim")
        log = Path(folder, "log")
        with log.open("w") as out:
            done = subprocess.run(
                ["debootstrap", "--variant=minbase", "--include=ca-certificates", suite, root],
                stdout=out,
                stderr=out,
                check=False,
            )
        if done.returncode:
            raise SystemExit(f"debootstrap failed:\n{log.read_text()[-2000:]}")
        shutil.copyfile("/" / CERTIFICATES, root / CERTIFICATES)
        shutil.rmtree(root / "var" / "cache" / "apt" / "archives", ignore_errors=True)
        archive = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
        subprocess.run(["docker", "import", "-", BASE], stdin=archive.stdout, check=True)
        if archive.wait():
            raise SystemExit("tar failed")


def make(name: str, folder: Path) -> None:
    """Make an image of the Dockerfile in a folder, which copies what lies beside it and these."""
    with tempfile.TemporaryDirectory() as context:
        shutil.copytree(folder, context, dirs_exist_ok=True)
        shutil.copy(ROOT / "requirements.lock", context)
        if "COPY jars/" in (folder / "Dockerfile").read_text():
            jars = Path(context, "jars")
            jars.mkdir()
            for jar in rest_catalog.class_path(("rest", "rest-server")):
                shutil.copy(jar, jars)
        subprocess.run(["docker", "build", "--quiet", "--tag", name, context], check=True)


if __name__ == "__main__":
    main()
