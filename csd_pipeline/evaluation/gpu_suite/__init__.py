"""Speed of one GPU: forwards, loops and memory on random weights of published shapes (`csd bench --suite gpu`)."""
