"""What the model card says."""

from xclearn.inference.card import model_card

ABOUT = {
    "xclearn": "1.2.3",
    "algorithm": "one_vs_all",
    "settings": {"epochs": 5, "vectoriser": {"kind": "words"}, "note": "a|b\nc"},
    "resolved": {"batch_size": 1024},
    "data": {"name": "colours", "documents": 12345},
    "training": {"seed": 0, "exact": True},
    "metrics": {"test": {"P@1": 66.66667}},
}


def test_everything_that_was_recorded_is_on_it():
    card = model_card(ABOUT, 104_000)
    assert card.startswith("# one_vs_all on colours\n\n104,000 labels. Written by xclearn 1.2.3.")
    for row in (
        "| epochs | 5 |",
        "| batch_size | 1,024 |",
        "| documents | 12,345 |",
        "| seed | 0 |",
        "| exact | True |",
    ):
        assert row in card
    assert "On `test`, in percent:\n\n| | |\n|---|---|\n| P@1 | 66.67 |" in card
    assert "| note | a\\|b c |" in card  # a cell stays one cell
    headings = [line for line in card.splitlines() if line.startswith("## ")]
    assert headings == ["## Accuracy", "## Data", "## Settings", "## Chosen from the data", "## Training", "## Use"]
    assert "xc predict MODEL" in card


def test_it_begins_with_what_the_model_is_for():
    assert model_card(ABOUT | {"purpose": "Shades."}, 3).startswith("# one_vs_all on colours\n\nShades.\n\n3 labels.")


def test_what_was_not_recorded_is_left_out():
    card = model_card({}, 3)
    assert card.startswith("# model on unnamed data\n")
    assert [line for line in card.splitlines() if line.startswith("## ")] == ["## Use"]
