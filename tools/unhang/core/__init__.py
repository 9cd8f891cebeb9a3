"""What every house uses: errors, text, node sets, strict readers, paths."""
