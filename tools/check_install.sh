#!/bin/sh
# Installs dist/wikiholt-*.whl in a new environment for each interpreter, and with pipx and uvx if they are in PATH.
# Runs `wikiholt demo` in each. Prints one line per install, and fails if one failed.
# Usage: tools/check_install.sh [PYTHON…]; by default every python3.11 to python3.14 in PATH.
set -u
cd "$(dirname "$0")/.." || exit 1
wheel=$(ls "$PWD"/dist/wikiholt-*.whl 2>/dev/null) || { echo "there is no wheel: run make wheel" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # NAME COMMAND…: run a step of shell code in an empty directory, and print whether it succeeded
    name=$1
    shift
    if mkdir "$work/$name" && (cd "$work/$name" && "$@") >"$work/$name.log" 2>&1; then
        printf '%-12s ok      %s\n' "$name" "$(grep -m 1 '^wikiholt [0-9]' "$work/$name.log")"
    else
        printf '%-12s FAILED  %s\n' "$name" "$(tail -n 1 "$work/$name.log")"
        failed=1
    fi
}

# shellcheck disable=SC2329 # the functions below are arguments of check
with_venv() {
    "$1" -m venv venv && venv/bin/pip install --quiet --disable-pip-version-check "$wheel" &&
        venv/bin/wikiholt --version && venv/bin/wikiholt demo demo && rm -rf venv
}

# shellcheck disable=SC2329
with_pipx() {
    PIPX_HOME="$PWD/home" PIPX_BIN_DIR="$PWD/bin" PIPX_MAN_DIR="$PWD/man" pipx install "$wheel" &&
        bin/wikiholt --version && bin/wikiholt demo demo && rm -rf home
}

# shellcheck disable=SC2329
with_uvx() {
    uvx --from "$wheel" wikiholt --version && uvx --from "$wheel" wikiholt demo demo
}

if [ $# -eq 0 ]; then
    for version in 3.11 3.12 3.13 3.14; do
        # A shim of a version manager may be in PATH without an interpreter behind it.
        if "python$version" -c pass 2>/dev/null; then set -- "$@" "python$version"; else echo "python$version   absent"; fi
    done
fi
for python in "$@"; do
    check "$("$python" -c 'import platform; print("python" + platform.python_version())')" with_venv "$python"
done
for tool in pipx uvx; do
    if command -v "$tool" >/dev/null; then check "$tool" "with_$tool"; else printf '%-12s absent\n' "$tool"; fi
done
exit "$failed"
