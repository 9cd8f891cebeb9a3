"""What the commands of all wings share: options and output."""
