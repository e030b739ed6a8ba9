"""A page in every Markdown dialect of wikis. Its code contains no character that `MARKUP_PATTERN` matches."""

import re

MARKUP_PATTERN = re.compile(
    r"\{\{|\}\}|\{%|%\}|\{#|\]\(|\]\[|\[\[|\]\]|\[!|\[\^|\]:|```|~~~|\*\*|~~|==|%%|:::|\$\$|\|"
    r"|</?[a-zA-Z]|<!--|-->|&\w+;|\\[a-z(]|^import |(?:^|\s)\#{1,6}\s|\^\w+|\.png|secret"
)
"""Markup that no snippet of the page may show."""

DIALECT_PAGE = """---
title: The greenhouse
tags: [secret, frontmatter]
---
# The greenhouse {#greenhouse .wide}

import Tabs from "@theme/secret";

[[_TOC_]]

The **greenhouse** stands _behind_ the [tool shed](https://example.org/shed_(old) "secret title"), and its key
hangs on the [`hook`](hooks.md#left) by the door. See also [[Watering|/garden/watering]], [[Seeds]] and
[the plan][plan].[^1]

> [!NOTE]- Before you open it
> The door sticks when it is ==wet==; push ~~hard~~ gently, H&amp;S says &quot;never kick it&quot;.

{{< note >}}
Air the {{< glossary_tooltip text="seedlings" term_id="seedling" >}} every morning,
unless it is below {{< param "secret" >}} five degrees.
{{< /note >}}

{% include secret.html %} The lamps are on from six to nine.{# secret #} Nobody else may turn them
off. {{{secret_macro}}}

| Plant | Sown | Planted out |
|:------|-----:|:-----------:|
| Tomato | March | **May**, after the frost |
| Leek `early` | February | April<br>or later |

<!-- secret: the code of the lock
     is not for everyone -->
<details class="secret">
<summary>What to do in a storm</summary>
<p style="secret">Close the <b>roof vents</b> first.&nbsp;Then weigh the
covers down with bricks.</p>
</details>

:::tip Cold nights
Cover the rows with fleece, and open it again before noon.
:::

```bash
pump --start --minutes 15
pump --status
```

The {{domxref("Tank.level", "level()")}} of the tank falls by about $$ \\frac{1}{10} $$ a day;
below $h_{min}$ the pump stops. %%secret%%

- [x] Order *peat-free* soil ^a1b2c3
- [ ] Repair the third pane, ![broken pane](pane.png) and ![[secret.png]] clean the gutter
    1. Take the ladder from <https://example.org/ladder> the barn
    2. Ask somebody to hold it &mdash; always

Setext heading
==============

<script>
secret();
</script>
Slugs come at night. ***Beer traps*** work, copper tape works better. ![[Slugs#Traps]]

~~~
trap: beer
depth: 4 cm
~~~

[plan]: https://example.org/secret "secret"
[^1]: The plan is from the year the roof was new.
*[H&S]: secret
"""
