"""One file a question that an audit asks of an interface."""
