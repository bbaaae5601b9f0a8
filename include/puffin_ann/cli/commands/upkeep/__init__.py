"""Commands that remove, rename or bring together: `clean`, `drop`, `rename`, `gather`."""
