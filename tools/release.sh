#!/bin/sh
# Makes the tag of a release after checking the tree: tools/release.sh VERSION. Pushes nothing.
# With --check before VERSION, only checks that the files name this version.
set -eu
cd "$(dirname "$0")/.."
check_only=
if [ "${1:-}" = --check ]; then
    check_only=yes
    shift
fi
version=${1:?usage: tools/release.sh [--check] VERSION}

fail() {
    echo "no release: $1" >&2
    exit 1
}

grep -qxF "version = \"$version\"" pyproject.toml || fail "pyproject.toml has another version than $version"
grep -qxF "__version__ = \"$version\"" src/wikiholt/__init__.py || fail "__version__ is not $version"
grep -qE "^## $(echo "$version" | sed 's/\./\\./g') \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
    fail "CHANGELOG.md has no heading '## $version (YYYY-MM-DD)'"
[ -z "$check_only" ] || exit 0

[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
[ "$(git branch --show-current)" = main ] || fail "the branch is not main"
! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists"
make test
make install-check
git tag -a "v$version" -m "Wikiholt $version"
echo "tagged v$version; publish it with: git push origin main v$version"
