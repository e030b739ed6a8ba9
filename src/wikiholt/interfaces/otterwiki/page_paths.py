"""Page paths of Otterwiki: lower case in git and title case on the page, unless it retains the case."""

from dataclasses import dataclass

from flask import current_app, request
from otterwiki.util import titleSs

from wikiholt.text.page_names import make_page_name
from wikiholt.wikis.session import PathStyle


@dataclass(frozen=True, slots=True)
class OtterwikiPaths(PathStyle):
    """The path style of the wiki of one request."""

    retain_case: bool
    root: str = ""
    """The path below which the wiki is mounted, without a trailing slash."""
    underscore_as_space: bool = False
    """Whether titles show a space for an underscore (TREAT_UNDERSCORE_AS_SPACE_FOR_TITLES)."""

    def to_display_path(self, path: str) -> str:
        return path if self.retain_case else "/".join(_capitalize(part) for part in path.split("/"))

    def to_display_title(self, name: str, path: str) -> str:
        """Return the name set in the page; for a name derived from the file name, the name that Otterwiki shows."""
        last = path.rpartition("/")[2]
        if name != make_page_name(last):
            return name
        title = self.to_display_path(last)
        return title.replace("_", " ") if self.underscore_as_space else title

    def to_git_path(self, path: str) -> str:
        clean = "/".join(part for part in path.split("/") if part)
        return clean if self.retain_case else clean.lower()

    def to_link_path(self, path: str) -> str | None:
        return self.to_display_path(path)

    def to_url(self, url: str) -> str:
        return self.root + url if url.startswith("/") else url

    def to_git_prefix(self, prefix: str) -> str:
        clean = prefix.lstrip("/")
        return clean if self.retain_case else clean.lower()


def get_request_paths() -> OtterwikiPaths:
    """Return the path style of the current request."""
    config = current_app.config
    return OtterwikiPaths(
        bool(config.get("RETAIN_PAGE_NAME_CASE", False)),
        request.script_root,
        bool(config.get("TREAT_UNDERSCORE_AS_SPACE_FOR_TITLES", False)),
    )


def _capitalize(part: str) -> str:
    # Otterwiki did not create a name that is not lower case, and shows it unchanged.
    return str(titleSs(part)) if part == part.lower() else part
