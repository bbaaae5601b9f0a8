"""`puffin-ann inspect`: what any Puffin file holds."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.table import Table as Grid

from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.cli.paths import named_location
from puffin_ann.cli.puffin_files import open_puffin
from puffin_ann.wording import counted

if TYPE_CHECKING:
    from puffin_ann.puffin.metadata import BlobMetadata
    from puffin_ann.puffin.reader import PuffinReader


def inspect(
    file: Annotated[
        str, typer.Argument(parser=named_location, help="Path or URI of a Puffin file.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show a Puffin file: footer, blobs, and the headers of those that are ours.

    Where an index's newest file is, 'puffin-ann status' says.

    \b
    Example: puffin-ann inspect \\
        "$(ls -t .local/warehouse/glove/words/metadata/ann-*.puffin | head -1)"
    """  # noqa: D301 - the first one keeps the lines apart
    with open_puffin(file) as reader:
        description = _describe(reader)
    if as_json:
        print_json(description)
    else:
        _show(file, description)


def _describe(reader: "PuffinReader") -> dict[str, Any]:
    from puffin_ann.blobs.describe import describe

    blobs = []
    for blob in reader.metadata.blobs:
        blobs.append(
            {
                "type": blob.type,
                "fields": list(blob.fields),
                "snapshot-id": blob.snapshot_id,
                "sequence-number": blob.sequence_number,
                "offset": blob.offset,
                "length": blob.length,
                "compression-codec": blob.compression_codec,
                "properties": dict(blob.properties),
                "content": describe(blob.type, _content(reader, blob)),
            }
        )
    return {
        "length": reader.length,
        "footer-size": reader.footer_size,
        "properties": dict(reader.metadata.properties),
        "blobs": blobs,
    }


def _content(reader: "PuffinReader", blob: "BlobMetadata") -> BinaryIO:
    """Return a blob's content as a stream; large blobs of ours are stored as they are."""
    return io.BytesIO(reader.read(blob)) if blob.compression_codec else reader.open(blob)


def _show(name: str, description: dict[str, Any]) -> None:
    console.print(
        f"{name}: Puffin file, {description['length']:,} bytes, "
        f"footer {description['footer-size']:,}, {len(description['blobs'])} blobs",
        highlight=False,
        soft_wrap=True,
    )
    for key, value in description["properties"].items():
        console.print(f"  {key}: {value}", highlight=False, markup=False)
    for blob in description["blobs"]:
        grid = Grid(title=blob["type"], title_justify="left", show_header=False)
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        codec = blob["compression-codec"] or "uncompressed"
        grid.add_row("bytes", f"{blob['length']:,} at {blob['offset']:,}, {codec}")
        grid.add_row("computed from", f"snapshot {blob['snapshot-id']}, fields {blob['fields']}")
        for key, value in [*blob["properties"].items(), *_content_lines(blob["content"])]:
            grid.add_row(str(key), str(value))
        console.print(grid)


def _content_lines(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a person wants to see of a blob's content."""
    if "note" in content:
        yield "content", content["note"]
        return
    yield "format", content["version"]
    for name, value in content["head"].items():
        yield name.replace("_", " "), _shown(name, value)
    for item in content.get("shards", []):
        deleted = f", {item['tombstones']:,} of them deleted" if item["tombstones"] else ""
        name = f"{'delta' if item['kind'] == 'delta' else 'shard'} {item['shard_id']}"
        yield (
            name,
            f"{counted(item['rows'], 'row')}{deleted}, "
            f"{item['bytes']:,} bytes {item['file']}".rstrip(),
        )
    for item in content.get("trials", []):
        figures = (f"{name.replace('_', ' ')} {item[name]}" for name in item if name != "algorithm")
        yield f"trial of {item.get('algorithm', '?')}", ", ".join(figures)
    sections = (f"{section['kind']} {section['length']:,}" for section in content["sections"])
    yield "sections", ", ".join(sections)


def _shown(name: str, value: Any) -> str:
    """Return a value of a head as people read it: counts in thousands, names of snapshots whole."""
    if isinstance(value, float):
        return f"{value:.6g}"
    is_count = (
        isinstance(value, int) and not isinstance(value, bool) and "id" not in name.split("_")
    )
    return f"{value:,}" if is_count and "snapshot" not in name else str(value)
