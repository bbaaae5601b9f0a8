"""Find what is wrong with a table's indexes; changes nothing.

`examine` asks for all of it and returns `findings`: what `doctor_declared` finds missing of what is
declared, or was `published_before`; `damage` of files' bytes, and `contradictions` of sound ones;
runs that `lease_findings` tell of; and `foreign_statistics` whose place a publication took.
"""
