"""A model over HTTP, and a page to try it. Needs the extra `[serve]`; no mathematics here."""
