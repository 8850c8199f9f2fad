"""Records: the cheapest certified models known, target by target."""
