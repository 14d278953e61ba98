"""Everything that owns processes: from a function to workers, and what became of them."""
