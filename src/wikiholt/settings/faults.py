"""What is wrong with the value of a setting, in words; an empty text if nothing is."""

import re
from pathlib import Path
from urllib.parse import urlsplit


def check_url_template(template: str) -> str:
    """What is wrong with the template of a link, or nothing."""
    if "{path}" not in template:
        return "it must contain {path}"
    odd = [name for name in re.findall(r"\{[^{}]*\}", template) if name != "{path}"]
    if odd:
        return f"{odd[0]} is not known, only {{path}} is"
    scheme = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*):", template)
    return "a link must be http or https" if scheme and scheme[1].lower() not in ("http", "https") else ""


def check_domain(domain: str) -> str:
    """What is wrong with the domain that wikis' host names end in, or nothing."""
    label = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    return (
        "" if not domain or re.fullmatch(rf"{label}(?:\.{label})*", domain) else "it is no host name in small letters"
    )


def check_directory(directory: str) -> str:
    """What is wrong with a directory, or nothing."""
    try:
        return "" if str(Path(directory).expanduser()).strip(" .") and "\0" not in directory else "it names no directory"
    except RuntimeError:  # `~somebody` who does not exist
        return "there is no such user"


def check_server_url(url: str) -> str:
    """What is wrong with the address of a server, or nothing."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("http", "https") or not named:
        return "it must be http:// or https:// and a host"
    if parts.username or parts.password:
        return "a secret belongs into chroma.token"
    return "" if parts.path in ("", "/") and not parts.query and not parts.fragment else "it must end after the port"


def check_store_address(address: str) -> str:
    """What is wrong with the address of a database, or nothing; it is never repeated, for it holds a password."""
    if not address:
        return ""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("postgresql", "postgres") and (parts.netloc or parts.path or parts.query)
    except ValueError:
        return "it is no address"
    return "" if good and "://" in address and address.isprintable() else "it must begin with postgresql://"


def check_resource_url(url: str) -> str:
    """What is wrong with the address that this service is reached by, or nothing."""
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it must be http:// or https:// and a host"
    return "it must end without / and have no ?, # or @" if re.search(r"[?#@]|/$", url) else ""


def check_jwks_location(location: str) -> str:
    """What is wrong with the place of public keys, or nothing."""
    if "://" not in location:
        return check_directory(location) if location else ""
    parts = urlsplit(location)
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    return "" if local or (parts.scheme == "https" and parts.hostname) else "it must be a file or begin with https://"


def check_chroma_name(name: str) -> str:
    """What is wrong with a name of Chroma's, or nothing."""
    good = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]", name)
    return "" if good else "it must be 3 or more letters, digits, dots, hyphens or underscores"
