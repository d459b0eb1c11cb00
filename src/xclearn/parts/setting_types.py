"""Setting types shared by several algorithms, each with its search space."""

from __future__ import annotations

from typing import Annotated

from xclearn.config import Auto, Count, Rate, Share, Span, Weight

EmbeddingDim = Annotated[Auto[Count], Span(64, 512, log=True)]
FusionWeight = Annotated[Auto[Share], Span(0.0, 1.0)]
LabelLr = Annotated[Auto[Rate], Span(0.02, 0.5, log=True)]
LabelTextWeight = Annotated[Auto[Weight], Span(0.0, 0.5, of_label_texts=True)]
