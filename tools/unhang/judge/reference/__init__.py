"""The catalogue for people: answers of `unhang explain`."""
