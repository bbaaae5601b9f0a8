#!/usr/bin/env bash
# Run the commands that the README shows for the demo's table, as a reader would after `make demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=/dev/null
source .local/env
commands=$(grep -E '^puffin-ann ' README.md)
[ -n "$commands" ]
while read -r command; do
    printf '$ %s\n' "$command"
    eval "$command" </dev/null
done <<<"$commands"
