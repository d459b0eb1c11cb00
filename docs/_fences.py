"""`console run` marks the blocks that the tests execute; to the site's builder they are plain `console` blocks."""

from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace("\n```console run\n", "\n```console\n")
