"""What several commands share: options, values, hosts to ask or to follow."""
