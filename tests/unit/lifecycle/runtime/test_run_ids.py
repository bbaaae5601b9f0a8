"""Runs that begin in the same second, in processes of the same number, have names of their own."""

import os
import re

from puffin_ann.cli.lease_options import own_run_id
from puffin_ann.lifecycle.runtime.run_ids import new_run_id, safe_run_id


def test_runs_of_one_second_and_process_differ(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    names = [own_run_id() for _ in range(50)]
    assert len(set(names)) == 50
    assert all(re.fullmatch(r"cli-\d{8}T\d{6}-[0-9a-f]{12}", name) for name in names)


def test_a_run_id_stands_in_a_path_as_it_is():
    name = new_run_id("cli")
    assert safe_run_id(name) == name
