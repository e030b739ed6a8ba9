"""Pages as people write them in Obsidian, Logseq, MkDocs, Docusaurus, Hugo, Sphinx and Asciidoctor."""

OBSIDIAN_PAGE = """---
tags: [garden]
---
status:: growing
Sown:: [[2024-03-01]]

The bed behind the [[Tool shed|shed]] gets ==much sun== in summer. %%secret [[Plan]]%% See [[Soil#Compost heap]],
[[#Harvest]] and [[Soil#^ph]]. #vegetables #year/2024 costs #123 and `#nocode` [water:: daily] ^bed1

> [!warning]- Frost in May
> Cover the rows, see [[Fleece]].
>> [!tip|wide] With bricks
>> The wind is strong here.

%%
secret plan of the neighbours

```
secret code
```
%%

![[pane.png|300]] ![[Soil]] ![A pane|100x80](pane.jpg) It broke.^[In the storm of March.]

## Harvest

- [?] Maybe beans #beans ^b2
- [x] Peas

| Plant | Where |
|---|---|
| Leek | [[Soil\\|the long bed]] |

```dataview
TABLE x WHERE y == "[[a|b]]" #notag
```
"""

OBSIDIAN_TEXT = (
    "status: growing Sown: 2024-03-01 · The bed behind the shed gets much sun in summer. See Soil > Compost heap, "
    "Harvest and Soil. #vegetables #year/2024 costs #123 and #nocode water: daily · "
    "Frost in May Cover the rows, see Fleece. With bricks The wind is strong here. "
    "Soil A pane It broke. (In the storm of March.) Harvest: Maybe beans #beans · Peas. "
    'Plant · Where; Leek · the long bed. TABLE x WHERE y == "[[a|b]]" #notag'
)

LOGSEQ_PAGE = """title:: Water tank
tags:: water, [[rain]]
alias:: Tank

- The tank holds 400 litres. #water
  id:: 65f0c1de-1111-4222-8333-444455556666
  collapsed:: true
\t- TODO clean it [[Autumn jobs]] #[[roof work]]
\t  :LOGBOOK:
\t  CLOCK: [2024-03-01 Fri 07:11:29] secret
\t  :END:
\t- see ((65f0c1de-1111-4222-8333-444455556666)) ^^this^^
"""

MKDOCS_PAGE = """# Install {: #setup .wide }

!!! note "Before you *start*"
    Read [the plan](plan.md).

    You need a ladder.

    ??? tip
        Ask for help.

        ```py
        !!! not a box
            code
        ```

    It takes an hour.

=== "Linux"

    ``` sh
    pump --start
    ```

=== "Windows"
    Click on the icon.

`vent`{: #vent }
:   !!! info

        Opens by itself.

    Made of brass.

[Next](next.md){ .md-button } :material-home: Home
{: .footer }

1. Unpack

    !!! danger ""
        It is heavy.

    Then lift.
"""

MKDOCS_TEXT = (
    "Install: Before you start Read the plan. You need a ladder. Ask for help. !!! not a box code · It takes an hour. "
    "Linux · pump --start · Windows Click on the icon. vent · Opens by itself. Made of brass. Next Home · Unpack · "
    "It is heavy. Then lift."
)

MDX_PAGE = """---
title: Pumps
---
import Tabs from '@theme/Tabs';
import {
  secret,

  other,
} from 'secret';

export const Secret = ({secret}) => (
  <b>{secret}</b>
);

# Pumps {#all-pumps}

There are {props.secret} two {'kinds'}. {/* secret */} One is < the other.

<Tabs
  defaultValue="secret"
  values={[{label: 'secret', value: 'secret'}]}>
<TabItem value="secret" label="Hand pump" onClick={() => secret()}>

Needs `<water>` and **patience**, see [valves](./valves.mdx).

</TabItem>
</Tabs>

<Box.Wide title="Power">The other needs power.</Box.Wide> <>Always.</>

```mdx-code-block
<Card>Oil it.</Card>
```

```jsx
import Shown from 'shown';
```
"""

MDX_TEXT = (
    "Pumps: There are two kinds. One is < the other. Hand pump · Needs <water> and patience, see valves. Power The "
    "other needs power. Always. Oil it. import Shown from 'shown';"
)

HUGO_PAGE = """+++
title = "Lamps"
tags = ["light"]
+++
{{< note >}}
They are on from [six]({{< ref "hours.md" >}}) to nine.
{{< /note >}}
"""

RST_PAGE = """.. _greenhouse:

==========
Greenhouse
==========

It has a door::

    door = 1
    ========

Lamps
-----

On from six.

Bulbs
~~~~~

Heating
-------
"""

ASCIIDOC_PAGE = """= Greenhouse
:toc:
// secret

== Lamps

[source,bash]
----
== not a heading
----

====
On from six.
====

////
secret
////

=== Bulbs
"""
