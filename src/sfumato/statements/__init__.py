"""What reads records for DP-SELECT: whoever asks statements trusts this package beside the core."""
