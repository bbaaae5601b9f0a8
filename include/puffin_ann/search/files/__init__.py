"""The file tier: centroids of data files say which can matter; their rows are compared exactly."""
