"""What several recipes share, and the parts of large ones."""
