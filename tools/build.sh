#!/bin/sh
# Builds the wheel and the sdist in dist/. Needs only Python with venv; PYTHON names another interpreter.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work"
"$work/bin/pip" install --quiet --disable-pip-version-check 'hatchling>=1.27'
rm -f dist/wikiholt-*
"$work/bin/python" -m hatchling build -d dist
