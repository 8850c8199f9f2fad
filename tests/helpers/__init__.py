"""What several tests share, by purpose: models to try things on, oracles that know the truth, attacks on a certificate,
theorems that every member of a family is held to, pages in a browser, documents as tests."""
