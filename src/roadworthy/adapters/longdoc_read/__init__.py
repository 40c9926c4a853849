"""Files into text with the place of every page. ``read.read_document`` is the way in; each format has a module."""
