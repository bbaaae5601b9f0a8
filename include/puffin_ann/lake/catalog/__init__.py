"""Find tables and snapshots through PyIceberg's own catalog configuration.

`tables` loads them; `timeouts` has questions to a silent catalog end in time.
"""
