"""What every member of a family is held to: banks of heads, circuit families, runtimes."""
