"""Tables and samples: layers verified at every entry."""
