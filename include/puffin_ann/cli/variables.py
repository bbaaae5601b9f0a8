"""Variables of the environment that are no setting, and were probably meant to be one."""

import os
from difflib import get_close_matches

from puffin_ann.settings import PREFIX, Settings

LIKE = 0.7
"""How like a setting's name another one is, of 1, to be taken for it misspelled."""


def misspelled_settings() -> dict[str, str]:
    """Return variables that set nothing, and for each the one that was probably meant.

    Those that are like none may be the user's own.
    """
    fields = [name.upper() for name in Settings.model_fields]
    found = {}
    for name in os.environ:
        field = name.upper().removeprefix(PREFIX)
        if name.upper().startswith(PREFIX) and field not in fields:
            for meant in get_close_matches(field, fields, n=1, cutoff=LIKE):
                found[name] = f"{PREFIX}{meant}"
    return found
