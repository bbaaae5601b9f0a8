import pytest
from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.errors import BadInputError, NotFoundError


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [("nothing", NotFoundError, "there is no such file"), ("", BadInputError, "is a folder")],
)
def test_what_is_no_file_is_told_as_what_it_is(tmp_path, name, error, said):
    path = str(tmp_path / name)
    result = CliRunner().invoke(app, ["inspect", path])
    assert isinstance(result.exception, error)
    assert said in str(result.exception)
    assert str(tmp_path) in str(result.exception)
