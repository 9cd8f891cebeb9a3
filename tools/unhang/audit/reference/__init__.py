"""The catalogue for people: answers of `unhang explain`, and the pages of `make manual`."""
