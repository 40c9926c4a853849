"""Where evidence comes from: files, folders, archives, compressed logs; always as chunks that end at a line's end."""
