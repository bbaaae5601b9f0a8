"""The generated pages of the documentation have every field of a declaration, and every command."""

import site_pages
import yaml

from puffin_ann.cli.app import app
from puffin_ann.declaration.json_schema import declaration_schema
from tests.support.paths import ROOT


def test_the_page_of_fields_has_every_field_of_every_part_of_a_declaration():
    page = site_pages.fields_page()
    schema = declaration_schema()
    for fields in (schema, *schema["$defs"].values()):
        for name in fields.get("properties", {}):
            assert f"| `{name}` |" in page, name


def test_the_page_of_commands_has_every_command_with_its_example():
    page = site_pages.commands_page()
    for command in app.registered_commands:
        assert f"## `{command.name}`" in page
        assert f"Example: puffin-ann {command.name} " in page


def test_no_page_is_written_that_the_site_does_not_lead_to():
    class Loader(yaml.SafeLoader):
        """The site's settings name Python functions, which this test does not want."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)  # noqa: S506
    led_to = set()
    for part in settings["nav"]:
        for entry in next(iter(part.values())):
            led_to.add(entry if isinstance(entry, str) else next(iter(entry.values())))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= led_to
