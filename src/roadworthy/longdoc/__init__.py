"""Long documents: split by their own structure, found by number and by words, cited so that code can check it."""
