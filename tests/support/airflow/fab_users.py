"""Users of Airflow's FAB auth manager, whose passwords are their names, and a role for one DAG.

Run as a program in the environment of a server: `python -m tests.support.airflow.fab_users`.
"""

from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

ONLY_DAG = "ann_build_words"
ROLES = {
    "admin": ("Admin", None),
    "viewer": ("Viewer", None),
    "nobody": ("May nothing", []),
    "reader": ("Reads one DAG", [("can_read", f"DAG:{ONLY_DAG}")]),
}
"""By user the role, and what it may; None for those that Airflow makes."""


def make() -> None:
    with get_application_builder() as builder:
        security = builder.sm
        security.sync_roles()  # makes Airflow's own
        for user, (name, permissions) in ROLES.items():
            role = security.find_role(name) or security.add_role(name)
            for action, resource in permissions or ():
                security.add_permission_to_role(role, security.create_permission(action, resource))
            made = security.add_user(user, user, user, f"{user}@example.org", role, user)
            assert made, f"user {user} is not made"


if __name__ == "__main__":
    make()
