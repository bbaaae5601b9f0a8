"""Say at the end how many hostile inputs the decoders were given."""

import pytest


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter):
    cases = sum(
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "hostile_cases" and report.when == "call"
    )
    if cases:
        terminalreporter.write_line(f"hostile bytes: {cases:,} cases given to the decoders")
