"""`python -m puffin_ann` is `puffin-ann`, where a shell does not find that name."""

from puffin_ann.cli.main import run

if __name__ == "__main__":
    run()
