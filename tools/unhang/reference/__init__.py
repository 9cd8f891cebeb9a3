"""What the catalogue says, for people: answers of `unhang explain`, and the pages of docs/ that are written from it."""
