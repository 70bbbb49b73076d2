"""The studies that come with the library, each made as a user makes one."""
