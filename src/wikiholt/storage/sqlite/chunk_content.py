"""The content of a chunk in an index file: its headings, anchor and text, compressed together."""

import json
import zlib

_MIN_COMPRESSED_BYTES = 50
_LEVEL, _WINDOW_BITS, _MEMORY_LEVEL = 6, 12, 5
"""A chunk is short: with a larger window and more memory, zlib takes five times as long and saves nothing."""
_DICTIONARY = (
    b" which their there about would other these could after where should between before because through without during"
    b" another however following example information available different provides specific current default required"
    b" returns values changes section number system object property method function string element have been more than"
    b" into only some when then them they will each also such like most made make over first page user text file name"
    b" type value list data time work used using uses it is that the for the to the in the of the on the with the"
    b" from the by the and the is a as a in a of a to be can be this is if you you can do not are not it's don't"
    b" see also for example, such as true false null const return import class width height color { }\n});\n  }\n}\n"
    b'=""></div>\n<div class="\n<p>https://www.http://.com/.org/.html.md)](/en/docs/img src="style="/>\n'
    b"```\n\n```js\n```css\n```html\n```json\n```bash\n```python\n| --- | --- |\n| \n- **\n- [\n- `\n  - \n* \n1. "
    b'\n\n> \n\n## \n\n### \n\n#### \n\nThe \n\nThis \n\nIn \n\nIf you \n\nTo \n\nYou can ["'
)
"""What many texts contain; zlib refers to it. With another dictionary, older files cannot be read."""


def encode_content(text: str, heading_path: str, anchor: str) -> str | bytes:
    """Compress a chunk, whose headings are given as JSON. A chunk that would not become smaller stays a text."""
    content = f"{heading_path}\n{json.dumps(anchor, ensure_ascii=False)}\n{text}"
    data = content.encode()
    if len(data) < _MIN_COMPRESSED_BYTES:
        return content
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -_WINDOW_BITS, _MEMORY_LEVEL, zdict=_DICTIONARY)
    compressed = compressor.compress(data) + compressor.flush()
    return compressed if len(compressed) < len(data) else content


def decode_content(encoded: str | bytes) -> tuple[str, str, str]:
    """Inverse of `encode_content`: text, headings and anchor. Raises ValueError or zlib.error."""
    content = encoded if isinstance(encoded, str) else _decompress(encoded)
    heading_path, anchor, text = content.split("\n", 2)
    # Without a backslash nothing is escaped. Most anchors have none, and JSON takes longer than all the rest.
    return text, heading_path, json.loads(anchor) if "\\" in anchor else anchor[1:-1]


def _decompress(data: bytes) -> str:
    decompressor = zlib.decompressobj(-_WINDOW_BITS, _DICTIONARY)
    content = decompressor.decompress(data)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the text of a chunk is incomplete, or has bytes after its end")
    return content.decode()
