"""What lies in the declarations folder besides declarations: refused at once, and not repeated."""

import os

import pytest

from puffin_ann.declaration import load_declaration, read_declarations
from puffin_ann.declaration.reading import MOST_BYTES
from puffin_ann.errors import DeclarationError

GOOD = "table: a.b.c\ncolumn: v\n"
SECRET = "hunter2"


def folder(tmp_path):
    found = tmp_path / "indexes"
    found.mkdir()
    return found


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    path = folder(tmp_path) / "words.yaml"
    os.mkfifo(path)
    with pytest.raises(DeclarationError, match=r"words\.yaml: is no regular file"):
        load_declaration(path)


def test_a_folder_is_refused(tmp_path):
    path = folder(tmp_path) / "words.yaml"
    path.mkdir()
    with pytest.raises(DeclarationError, match=r"words\.yaml: cannot be read: Is a directory"):
        load_declaration(path)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text(f"root:{SECRET}")
    path = folder(tmp_path) / "words.yaml"
    path.symlink_to(outside)
    with pytest.raises(DeclarationError, match="leads out of its folder") as caught:
        load_declaration(path)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("target", ["words.yaml", "gone.yaml"])
def test_a_link_to_itself_or_to_nothing_is_refused(tmp_path, target):
    path = folder(tmp_path) / "words.yaml"
    path.symlink_to(target)
    with pytest.raises(DeclarationError, match="cannot be read"):
        load_declaration(path)


def test_links_as_kubernetes_mounts_a_config_map_are_followed(tmp_path):
    mounted = folder(tmp_path)
    (mounted / "..2026_01_01").mkdir()
    (mounted / "..2026_01_01" / "words.yaml").write_text(GOOD)
    (mounted / "..data").symlink_to("..2026_01_01")
    (mounted / "words.yaml").symlink_to("..data/words.yaml")
    (linked := tmp_path / "linked").symlink_to(mounted)
    for place in (mounted, linked):
        assert [declaration.name for declaration in read_declarations(place).valid] == ["words"]


def test_a_huge_file_is_refused_without_being_read(tmp_path):
    path = folder(tmp_path) / "words.yaml"
    path.write_text(GOOD)
    os.truncate(path, 1 << 40)
    with pytest.raises(DeclarationError, match="more than 64 KiB"):
        load_declaration(path)
    path.write_text(GOOD + "#" * (MOST_BYTES - len(GOOD)))
    assert load_declaration(path).name == "words"


@pytest.mark.parametrize(
    "text",
    [
        f"a: *{SECRET}\n",
        f"a: !{SECRET} x\n",
        f"a: '{SECRET}\n",
        f"a: [{SECRET}\n",
        f"{SECRET}: {{\n",
        f"%{SECRET} x\n---\na: 1\n",
        f"a: !!int {SECRET}\n",
        f"a: !!float {SECRET}\n",
        f"a: !!binary {SECRET}é\n",
        f"a: !!timestamp {SECRET}\n",
        f"a: !!bool {SECRET}\n",
        f"{SECRET}\n",
        f"- {SECRET}\n",
        f"{SECRET}\udcff",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    ],
)
def test_what_is_no_declaration_is_not_repeated(tmp_path, text):
    path = folder(tmp_path) / "words.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DeclarationError, match=r"words\.yaml: ") as caught:
        load_declaration(path)
    assert SECRET not in str(caught.value)
