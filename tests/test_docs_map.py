"""docs/map.md says of every file what the file says of itself."""

from benchmarks import map as file_map


def test_the_page_is_as_the_files_are() -> None:
    assert file_map.PAGE.read_text(encoding="utf-8") == file_map.page(), "run `python -m benchmarks.map`"


def test_every_file_says_what_it_does() -> None:
    rows = [line for line in file_map.page().splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert [row for row in rows if row.endswith("| . |")] == []
