"""Records in, pictures out: matplotlib figures, the live dashboard, and their plain-text twins."""
