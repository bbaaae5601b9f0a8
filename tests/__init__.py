"""Tests: `unit` starts nothing, `integration` starts real services, `e2e` starts Airflow.

Folders are called as the packages that they test, so that who changes `lifecycle/refresh` runs
`make test ONLY=lifecycle/refresh`.
`property` plays random histories of tables against an oracle, `fuzz` feeds bytes to decoders,
`matrix` installs the wheel beside other versions; `support` is what all of them share.
"""
