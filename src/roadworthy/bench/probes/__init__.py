"""Long-context quality: facts hidden in long texts, questions about them, and how many were answered right."""
