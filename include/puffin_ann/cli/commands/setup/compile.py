"""`puffin-ann compile`: have the kernels of searches and builds compiled ahead."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from puffin_ann.cli.output import AsJson, print_json, say
from puffin_ann.cli.paths import named_path
from puffin_ann.cli.progress import steps


def compile(
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="PROCESSORS",
            help="Which processors to compile for: native is this machine's; vbmi (AVX-512 with "
            "VBMI and VNNI), avx2 and portable are all that have these instructions, whatever "
            "this machine has. May be given several times.  [default: native]",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            parser=named_path,
            metavar="DIR",
            help="Folder to put them in, where processes look that have PUFFIN_ANN_KERNELS_DIR set "
            "to it; default: this environment's, where they look in any case.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels of searches, builds and refreshes ahead of their first use.

    It takes a minute or two for each processor, and nothing where they are there. Without it, they
    are compiled when they are first used, by each user for each machine. Make them part of an
    image or a packed environment for the processors that it may meet.

    Example: puffin-ann compile --for avx2 --for vbmi
    """
    from puffin_ann.compilation.compile import compile_kernels
    from puffin_ann.settings import settings

    with steps(as_json=as_json) as step:
        done = compile_kernels(targets or ["native"], to, progress=step)
    folder = str(to or settings().kernels_dir)
    if as_json:
        print_json({"folder": folder, "compiled": [asdict(target) for target in done]})
        return
    for target in done:
        how = f"compiled in {target.seconds:.0f} s" if target.seconds else "there already"
        say(f"{target.kernels} kernels for {target.processor} ({target.level} instructions): {how}")
    say(f"they are in {folder}")
