"""The pages of a small wiki for tests of commands."""

COFFEE = """---
title: Coffee machine
tags: [kitchen]
---
Ask before you buy another one.

## Descaling

Descale the boiler every month. See [[Kitchen/Tea]] and [nowhere](Missing.md).

### Vinegar

Never use vinegar.

## Milk

Rinse the frother.
"""
HOUSE_FILES: dict[str, str | bytes | None] = {
    "Kitchen/Coffee.md": COFFEE,
    "Kitchen/Tea.md": "# Tea\n\nBoil water. Back to [the machine](Coffee.md#milk).\n",
    "Home.md": "# Home\n\nWelcome to the boiler room.\n",
    "notes/Tea.md": "# Tea\n\nTea of the notes, for \x1b]0;owned\x07 guests.\n",
    "windows.md": "---\r\ntitle: Windows\r\nalias: Pane\r\n---\r\n\r\n# Windows\r\n\r\nGlazing of the greenhouse.\r\n",
}
