"""What tests share: sources of noise, the command line, projects, servers; see each module."""
