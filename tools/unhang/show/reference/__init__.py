"""The catalogue for people: answers of `unhang explain`, and the generated pages of docs/."""
