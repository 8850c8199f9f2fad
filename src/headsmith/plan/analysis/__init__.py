"""What is known of a graph on a domain: where its nodes can lie, how errors travel through it. For planning: nothing
here is trusted."""
