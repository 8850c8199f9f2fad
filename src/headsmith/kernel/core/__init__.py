"""What every file needs: numbers that round themselves, the circuit, ranges, errors, heads, the walk, the check."""
