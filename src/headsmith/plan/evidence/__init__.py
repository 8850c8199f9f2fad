"""What is looked for and never believed: the kernel checks whatever comes out of here."""
