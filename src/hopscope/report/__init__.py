"""The page: run folders in, one self-contained HTML file out.  Knows neither torch nor the studies."""
